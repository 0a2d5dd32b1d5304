"""MXFP8 against an oracle on Python floats, and every way in which a stored tensor can be wrong."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from slipstream.base.errors import CheckpointError, EngineError, ShapeError
from slipstream.weights.formats.mxfp8 import Mxfp8, dequantise_mxfp8, quantise_mxfp8
from slipstream.weights.reader import CheckpointReader
from support.quantised import e4m3_value, mxfp8_oracle, nearest_even
from support.tiny_tensors import write_single

E4M3_GRID = [e4m3_value(byte) for byte in range(127)]


def random_weight(rows: int, columns: int, seed: int = 0) -> Tensor:
    """Return values of many magnitudes, a group of zeros among them."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(rows, columns, generator=generator)
    weight *= torch.pow(2.0, torch.randint(-90, 90, (rows, columns // 32), generator=generator)).repeat_interleave(
        32, 1
    )
    weight[0, :32] = 0
    return weight


def write(folder: Path, weight: Tensor, **changes: Any) -> Path:
    values, codes = quantise_mxfp8(weight)
    tensors = {"a.weight": values, "a.weight_scale_inv": codes} | changes
    return write_single(folder, {name: tensor for name, tensor in tensors.items() if tensor is not None})


def test_every_byte_and_every_code_is_dequantised_like_the_oracle() -> None:
    values = torch.arange(256, dtype=torch.uint8).repeat(247, 1)
    values[:, [127, 255]] = 0  # NaN equals nothing
    codes = torch.arange(247, dtype=torch.uint8)[:, None].repeat(1, 8)
    found = dequantise_mxfp8(values.view(torch.float8_e4m3fn), codes)
    assert found.dtype == torch.float32
    assert torch.equal(found, mxfp8_oracle(values, codes))
    assert torch.equal(dequantise_mxfp8(values.view(torch.float8_e4m3fn), codes.view(torch.float8_e8m0fnu)), found)


def test_values_come_out_the_same_in_bfloat16() -> None:
    values, codes = quantise_mxfp8(random_weight(8, 128))
    wide = dequantise_mxfp8(values, codes)
    assert torch.equal(wide.bfloat16().float(), wide)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_quantised_values_are_the_nearest_and_the_exponent_is_the_least_that_fits(dtype: torch.dtype) -> None:
    weight = torch.randn(4, 96).to(dtype)
    weight[1, :32] *= 448 / weight[1, :32].abs().max()  # at, and with the next just above, the end of a scale
    weight[2, :32] *= 2.0**-8
    values, codes = quantise_mxfp8(weight)
    assert (values.dtype, codes.dtype) == (torch.float8_e4m3fn, torch.uint8)
    assert (values.shape, codes.shape) == ((4, 96), (4, 3))
    for row in range(4):
        for group in range(3):
            part = weight[row, group * 32 : group * 32 + 32].double().tolist()
            exponent = math.ceil(math.log2(max(map(abs, part)) / 448))
            assert codes[row, group] == exponent + 127
            expected = [nearest_even(math.ldexp(value, -exponent), E4M3_GRID) for value in part]
            assert values[row, group * 32 : group * 32 + 32].double().tolist() == expected


@pytest.mark.parametrize(("amax", "exponent"), [(448.0, 0), (448.00003, 1), (447.99997, 0), (224.0, -1), (896.0, 1)])
def test_the_exponent_steps_exactly_behind_the_largest_value(amax: float, exponent: int) -> None:
    weight = torch.full((1, 32), amax / 3)
    weight[0, 5] = -amax
    values, codes = quantise_mxfp8(weight)
    assert int(codes) == exponent + 127
    # A scale that rounds down would need more than 448 here, and saturate.
    assert float(dequantise_mxfp8(values, codes)[0, 5]) == pytest.approx(-amax, rel=1 / 16)
    assert not values.float().isnan().any()


def test_what_fits_the_format_survives_and_quantising_twice_changes_nothing() -> None:
    weight = random_weight(6, 160)
    once = dequantise_mxfp8(*quantise_mxfp8(weight))
    assert torch.equal(dequantise_mxfp8(*quantise_mxfp8(once)), once)
    group_amax = weight.view(6, 5, 32).abs().amax(-1, keepdim=True)
    assert bool(((once - weight).view(6, 5, 32).abs() <= group_amax / 16).all())


def test_zeros_nan_and_the_ends_of_float32() -> None:
    weight = torch.zeros(1, 160)
    weight[0, 32] = math.nan
    weight[0, 64] = 2.0**-149
    weight[0, 96] = 3e38
    values, codes = quantise_mxfp8(weight)
    assert codes[0, [0, 2, 3]].tolist() == [127, 3, 245]
    assert torch.equal(values[0, :32].float(), torch.zeros(32))
    assert values[0, 32].float().isnan()
    assert values[0, 96].float() == 448
    assert dequantise_mxfp8(values, codes)[0, 64:].isfinite().all()


def test_any_leading_axes_and_strides_are_taken() -> None:
    weight = torch.randn(3, 64, 8).transpose(1, 2)
    values, codes = quantise_mxfp8(weight)
    assert (values.shape, codes.shape) == ((3, 8, 64), (3, 8, 2))
    assert torch.equal(values[1].float(), quantise_mxfp8(weight[1].contiguous())[0].float())
    assert torch.equal(dequantise_mxfp8(values, codes)[2], dequantise_mxfp8(values[2], codes[2]))


def test_axes_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(ShapeError, match="multiple of 32 columns"):
        quantise_mxfp8(torch.zeros(2, 48))
    values, codes = quantise_mxfp8(torch.zeros(2, 64))
    with pytest.raises(ShapeError, match="one per 32 columns"):
        dequantise_mxfp8(values, codes[:, :1])


def test_transformers_dequantises_to_the_same_values() -> None:
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize

    values, codes = quantise_mxfp8(random_weight(4, 64))
    peer = object.__new__(Fp8Dequantize)
    assert torch.equal(peer._dequantize_one(values, codes, torch.float32), dequantise_mxfp8(values, codes))


def test_any_slice_is_that_slice_of_the_whole(tmp_path: Path) -> None:
    weight, form = random_weight(6, 128), Mxfp8()
    with CheckpointReader(write(tmp_path, weight)) as reader:
        whole = form.read(reader, "a.weight", ())
        assert torch.equal(whole, mxfp8_oracle(*quantise_mxfp8(weight)))
        assert form.shape(reader, "a.weight") == (6, 128)
        for rows in (slice(None), slice(2, 5)):
            for columns in (slice(None), slice(0, 64), slice(64, 128), slice(5, 70), slice(33, 34), slice(40, 40)):
                assert torch.equal(form.read(reader, "a.weight", (rows, columns)), whole[rows, columns])
        assert torch.equal(form.read(reader, "a.weight", (slice(1, 3),)), whole[1:3])


def test_experts_stacked_in_one_tensor_are_sliced_too(tmp_path: Path) -> None:
    weight, form = torch.randn(3, 4, 64), Mxfp8()
    with CheckpointReader(write(tmp_path, weight)) as reader:
        whole = form.read(reader, "a.weight", ())
        assert torch.equal(whole, dequantise_mxfp8(*quantise_mxfp8(weight)))
        part = form.read(reader, "a.weight", (slice(None), slice(1, 3), slice(16, 48)))
        assert torch.equal(part, whole[:, 1:3, 16:48])


def test_parts_are_the_stored_bytes_of_whole_groups(tmp_path: Path) -> None:
    weight, form = random_weight(4, 96), Mxfp8()
    values, codes = quantise_mxfp8(weight)
    with CheckpointReader(write(tmp_path, weight)) as reader:
        parts = form.parts(reader, "a.weight", (slice(1, 3), slice(32, 96)))
        assert torch.equal(parts.values.view(torch.uint8), values[1:3, 32:].view(torch.uint8))
        assert torch.equal(parts.scales, codes[1:3, 1:])
        assert parts.global_scale is None
        with pytest.raises(EngineError, match="cut a group of 32"):
            form.parts(reader, "a.weight", (slice(None), slice(0, 40)))


def test_names_count_scales_and_know_an_activation_scale() -> None:
    assert Mxfp8().stored_names("a.weight") == ("a.weight", "a.weight_scale_inv")
    assert list(Mxfp8().unused_names("a.weight")) == ["a.input_scale"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"a.weight_scale_inv": None}, ("without its scales a.weight_scale_inv",)),
        ({"a.weight_scale_inv": torch.ones(4, 2)}, ("a.weight_scale_inv are stored as F32", "U8, F8_E8M0")),
        ({"a.weight_scale_inv": torch.ones(2, 4).byte()}, ("shape [2, 4]", "[4, 64]", "[4, 2]")),
        ({"a.weight_scale_inv": torch.full((4, 2), 255).byte()}, ("code 255 (NaN)", "0 to 245")),
        ({"a.weight_scale_inv": torch.full((4, 2), 246).byte()}, ("code 246 (2^119)", "bfloat16")),
        ({"a.weight": torch.full((4, 64), math.nan).to(torch.float8_e4m3fn)}, ("a.weight holds NaN",)),
    ],
)
def test_a_damaged_tensor_is_refused_by_name(tmp_path: Path, changes: dict[str, Any], words: tuple[str, ...]) -> None:
    form = Mxfp8()
    with (
        CheckpointReader(write(tmp_path, torch.randn(4, 64), **changes)) as reader,
        pytest.raises(CheckpointError) as caught,
    ):
        form.read(reader, "a.weight", ())
    for word in (*words, "model.safetensors"):
        assert word in str(caught.value)


def test_a_scale_of_245_is_still_read(tmp_path: Path) -> None:
    codes = torch.full((4, 2), 245).byte()
    with CheckpointReader(write(tmp_path, torch.randn(4, 64), **{"a.weight_scale_inv": codes})) as reader:
        found = Mxfp8().read(reader, "a.weight", ())
    assert torch.equal(found.bfloat16().float(), found)
    assert found.isfinite().all()
