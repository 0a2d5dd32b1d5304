"""NVFP4 in both dialects against an oracle on Python floats, and every way in which a stored tensor can be wrong."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from slipstream.base.errors import CheckpointError, EngineError, ShapeError
from slipstream.weights.formats.nvfp4 import Nvfp4, dequantise_nvfp4, global_scale_nvfp4, quantise_nvfp4
from slipstream.weights.reader import CheckpointReader
from support.quantised import E2M1, e4m3_value, nearest_even, nvfp4_oracle
from support.tiny_tensors import write_single

DIALECTS = ("nvfp4", "nvfp4-m31")
E4M3_GRID = [e4m3_value(byte) for byte in range(127)]


def write(folder: Path, weight: Tensor, dialect: str, global_scale: float | None = None, **changes: Any) -> Path:
    packed, scales, factor = quantise_nvfp4(weight, global_scale)
    if dialect == "nvfp4":
        tensors = {"a.weight": packed, "a.weight_scale": scales, "a.weight_scale_2": factor}
    else:
        factor = (1 / factor).reshape(1)
        tensors = {"a.weight_packed": packed, "a.weight_scale": scales, "a.weight_global_scale": factor}
    tensors |= changes
    return write_single(folder, {name: tensor for name, tensor in tensors.items() if tensor is not None})


def test_every_nibble_and_every_scale_is_dequantised_like_the_oracle() -> None:
    packed = torch.arange(256, dtype=torch.uint8).repeat(127, 1)
    scales = torch.arange(127, dtype=torch.uint8)[:, None].repeat(1, 32)
    for multiplier in (1.0, 0.0371, 2.0**-10):
        exact = float(torch.tensor(multiplier))
        found = dequantise_nvfp4(packed, scales.view(torch.float8_e4m3fn), multiplier)
        assert torch.equal(found, nvfp4_oracle(packed, scales, exact))


def test_the_low_nibble_is_the_even_column() -> None:
    packed, scales = torch.tensor([[0x72] + [0] * 7], dtype=torch.uint8), torch.ones(1, 1).to(torch.float8_e4m3fn)
    assert dequantise_nvfp4(packed, scales, 1.0)[0, :3].tolist() == [1.0, 6.0, 0.0]


def test_ties_go_to_the_even_code_and_large_values_saturate() -> None:
    ratios = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, -0.25, -5.0, 0.26, 0.74, 6.0, 5.1, -1.0, 0.0, 2.4]
    nearest = [0.0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0, 0.0, -4.0, 0.5, 0.5, 6.0, 6.0, -1.0, 0.0, 2.0]
    packed, scales, factor = quantise_nvfp4(torch.tensor([ratios]), 1.0)
    assert float(scales.float()) == 1.0
    assert dequantise_nvfp4(packed, scales, factor)[0].tolist() == nearest
    # With a fixed global scale a block may be beyond 448 * 6 of it.
    saturated = dequantise_nvfp4(*quantise_nvfp4(torch.full((1, 16), -1e6), 1.0))
    assert saturated.unique().tolist() == [-2688.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_quantised_values_are_the_nearest_under_nearest_scales(dtype: torch.dtype) -> None:
    weight = (torch.randn(3, 48) * torch.tensor([[1.0], [0.01], [20.0]])).to(dtype)
    packed, scales, factor = quantise_nvfp4(weight)
    assert (packed.dtype, scales.dtype, factor.dtype) == (torch.uint8, torch.float8_e4m3fn, torch.float32)
    assert (packed.shape, scales.shape, factor.shape) == ((3, 24), (3, 3), ())
    assert float(factor) == pytest.approx(float(weight.abs().max()) / 2688, rel=1e-6)
    found = dequantise_nvfp4(packed, scales, factor).double()
    for row in range(3):
        for block in range(3):
            part = weight[row, block * 16 : block * 16 + 16].double()
            wanted = float(part.abs().max()) / 6 / float(factor)
            scale = float(scales[row, block].float())
            # Quotients are float32 there and float64 here: within that, half way between two is nearest to both.
            assert abs(scale - wanted) <= abs(nearest_even(wanted, E4M3_GRID) - wanted) * (1 + 1e-5) + 1e-6 * wanted
            for value, got in zip(part.tolist(), found[row, block * 16 : block * 16 + 16].tolist(), strict=True):
                ratio, chosen = value / scale / float(factor), got / scale / float(factor)
                assert abs(chosen - ratio) <= abs(nearest_even(ratio, E2M1) - ratio) + 1e-5
                assert min(abs(chosen - value) for value in (*E2M1, *(-one for one in E2M1))) < 1e-5


def test_the_largest_element_of_a_tensor_keeps_its_value() -> None:
    weight = torch.randn(8, 64)
    found = dequantise_nvfp4(*quantise_nvfp4(weight))
    place = weight.abs().argmax()
    assert float(found.flatten()[place]) == pytest.approx(float(weight.flatten()[place]), rel=1e-6)


@pytest.mark.parametrize("multiplier", [2.0**-7, 0.0123])
def test_what_fits_the_format_survives(multiplier: float) -> None:
    generator = torch.Generator().manual_seed(3)
    codes = torch.randint(0, 16, (5, 64), generator=generator)
    codes[:, ::16] = 7  # each block holds a six, so that its scale is found again
    packed = (codes[:, 0::2] | codes[:, 1::2] << 4).byte()
    scales = torch.randint(1, 127, (5, 4), generator=generator).byte().view(torch.float8_e4m3fn)
    weight = dequantise_nvfp4(packed, scales, multiplier)
    again = quantise_nvfp4(weight, multiplier)
    assert torch.equal(again[1].float(), scales.float())
    assert torch.equal(dequantise_nvfp4(*again), weight)


def test_zeros_and_blocks_far_below_the_others_stay_finite() -> None:
    weight = torch.zeros(2, 32)
    packed, scales, factor = quantise_nvfp4(weight)
    assert float(factor) == 1.0
    assert torch.equal(dequantise_nvfp4(packed, scales, factor), weight)
    weight[0, 0], weight[1, :16] = 1000.0, 1e-4
    packed, scales, factor = quantise_nvfp4(weight)
    assert float(scales[1, 0].float()) == 2.0**-9
    assert dequantise_nvfp4(packed, scales, factor).isfinite().all()
    assert dequantise_nvfp4(*quantise_nvfp4(torch.full((1, 16), 1e-44))).isfinite().all()


def test_two_weights_share_the_larger_global_scale() -> None:
    first, second = torch.randn(4, 32), 3 * torch.randn(4, 32)
    shared = global_scale_nvfp4(first, second)
    assert float(shared) == max(float(global_scale_nvfp4(first)), float(global_scale_nvfp4(second)))
    found = dequantise_nvfp4(*quantise_nvfp4(first, float(shared)))
    assert float((found - first).abs().max()) < float(first.abs().max()) / 5


def test_axes_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(ShapeError, match="multiple of 16 columns"):
        quantise_nvfp4(torch.zeros(2, 24))
    packed, scales, factor = quantise_nvfp4(torch.zeros(2, 32))
    with pytest.raises(ShapeError, match="two columns a byte"):
        dequantise_nvfp4(packed, scales[:, :1], factor)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_any_slice_is_that_slice_of_the_whole(tmp_path: Path, dialect: str) -> None:
    weight, form = torch.randn(6, 96), Nvfp4(dialect)
    with CheckpointReader(write(tmp_path, weight, dialect)) as reader:
        whole = form.read(reader, "a.weight", ())
        assert form.shape(reader, "a.weight") == whole.shape == (6, 96)
        for rows in (slice(None), slice(2, 5)):
            for columns in (slice(None), slice(0, 48), slice(48, 96), slice(5, 38), slice(17, 18), slice(9, 9)):
                assert torch.equal(form.read(reader, "a.weight", (rows, columns)), whole[rows, columns])


def test_the_dialects_differ_in_the_direction_of_the_global_scale(tmp_path: Path) -> None:
    weight = torch.randn(4, 64)
    packed, scales, _ = quantise_nvfp4(weight, 2.0**-6)
    expected = nvfp4_oracle(packed, scales, 2.0**-6)
    for dialect, stored in (("nvfp4", 2.0**-6), ("nvfp4-m31", 2.0**6)):
        form = Nvfp4(dialect)
        with CheckpointReader(write(tmp_path / dialect, weight, dialect, 2.0**-6)) as reader:
            assert float(reader.read(form.stored_names("a.weight")[2])) == stored
            assert torch.equal(form.read(reader, "a.weight", ()), expected)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_parts_are_the_stored_bytes_and_a_multiplier(tmp_path: Path, dialect: str) -> None:
    weight, form = torch.randn(4, 64), Nvfp4(dialect)
    packed, scales, factor = quantise_nvfp4(weight)
    with CheckpointReader(write(tmp_path, weight, dialect)) as reader:
        parts = form.parts(reader, "a.weight", (slice(1, 3), slice(16, 48)))
        assert torch.equal(parts.values, packed[1:3, 8:24])
        assert torch.equal(parts.scales.view(torch.uint8), scales[1:3, 1:3].view(torch.uint8))
        assert parts.global_scale is not None
        assert float(parts.global_scale) == pytest.approx(float(factor), rel=1e-6)
        found = dequantise_nvfp4(parts.values, parts.scales, parts.global_scale)
        assert torch.equal(found, form.read(reader, "a.weight", (slice(1, 3), slice(16, 48))))
        with pytest.raises(EngineError, match="cut a group of 16"):
            form.parts(reader, "a.weight", (slice(None), slice(0, 24)))


@pytest.mark.parametrize(
    ("dialect", "changes", "words"),
    [
        ("nvfp4", {"a.weight_scale": None}, ("a.weight_scale is missing",)),
        ("nvfp4", {"a.weight_scale_2": None}, ("a.weight_scale_2 is missing",)),
        ("nvfp4-m31", {"a.weight_global_scale": None}, ("a.weight_global_scale is missing",)),
        ("nvfp4", {"a.weight_scale": torch.ones(4, 4).byte()}, ("a.weight_scale is stored as U8", "F8_E4M3")),
        ("nvfp4", {"a.weight": torch.ones(4, 32).char()}, ("a.weight is stored as I8", "needs U8")),
        ("nvfp4", {"a.weight_scale": torch.ones(4, 2).to(torch.float8_e4m3fn)}, ("[4, 2]", "[4, 32]", "[4, 4]")),
        ("nvfp4", {"a.weight_scale_2": torch.ones(2)}, ("a.weight_scale_2 has shape [2]",)),
        ("nvfp4", {"a.weight_scale_2": torch.tensor(0.0)}, ("a.weight_scale_2 is 0",)),
        ("nvfp4-m31", {"a.weight_global_scale": torch.tensor([math.nan])}, ("a.weight_global_scale is nan",)),
        ("nvfp4-m31", {"a.weight_global_scale": torch.tensor([0.0])}, ("a.weight_global_scale is 0",)),
        ("nvfp4", {"a.weight_scale": torch.full((4, 4), -1.0).to(torch.float8_e4m3fn)}, ("number below zero",)),
        ("nvfp4", {"a.weight_scale": torch.full((4, 4), math.nan).to(torch.float8_e4m3fn)}, ("hold NaN",)),
    ],
)
def test_a_damaged_tensor_is_refused_by_name(
    tmp_path: Path, dialect: str, changes: dict[str, Any], words: tuple[str, ...]
) -> None:
    form = Nvfp4(dialect)
    with (
        CheckpointReader(write(tmp_path, torch.randn(4, 64), dialect, **changes)) as reader,
        pytest.raises(CheckpointError) as caught,
    ):
        form.read(reader, "a.weight", ())
    for word in (*words, "model.safetensors"):
        assert word in str(caught.value)


@pytest.mark.parametrize(("dialect", "unused"), [("nvfp4", "a.input_scale"), ("nvfp4-m31", "a.input_global_scale")])
def test_scales_of_activations_are_known_and_not_used(dialect: str, unused: str) -> None:
    assert Nvfp4(dialect).unused_names("a.weight") == {unused: "activations are not quantised"}
