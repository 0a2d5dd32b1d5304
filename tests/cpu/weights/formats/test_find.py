"""What is stored decides the format; a declaration that says otherwise names the tensor."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from slipstream.base.errors import CheckpointError
from slipstream.config.quantization.spec import Quantization
from slipstream.weights.formats.find import find_format, has_stored
from slipstream.weights.formats.mxfp8 import quantise_mxfp8
from slipstream.weights.formats.nvfp4 import quantise_nvfp4
from slipstream.weights.reader import CheckpointReader
from support.tiny_tensors import write_single

NAME = "model.layers.0.self_attn.q_proj.weight"


def stored(form: str) -> dict[str, Tensor]:
    """Return a weight in one format under its stored names."""
    weight = torch.randn(4, 64)
    if form == "plain":
        return {NAME: weight}
    if form == "mxfp8":
        values, codes = quantise_mxfp8(weight)
        return {NAME: values, f"{NAME}_scale_inv": codes}
    packed, scales, factor = quantise_nvfp4(weight)
    payload, name = ("", "_scale_2") if form == "nvfp4" else ("_packed", "_global_scale")
    return {f"{NAME}{payload}": packed, f"{NAME}_scale": scales, f"{NAME}{name}": factor}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_plain_dtypes_are_plain(tmp_path: Path, dtype: torch.dtype) -> None:
    with CheckpointReader(write_single(tmp_path, {"w": torch.ones(2, 2, dtype=dtype)})) as reader:
        assert find_format(reader, "w").name == "plain"


@pytest.mark.parametrize("form", ["plain", "mxfp8", "nvfp4", "nvfp4-m31"])
@pytest.mark.parametrize("declared", ["plain", "mxfp8", "nvfp4", "nvfp4-m31"])
def test_stored_and_declared_must_agree(tmp_path: Path, form: str, declared: str) -> None:
    quantization = Quantization(default=declared, where="config.json.quantization_config")
    with CheckpointReader(write_single(tmp_path, stored(form))) as reader:
        assert has_stored(reader, NAME)
        if form == declared:
            assert find_format(reader, NAME, quantization).name == form
            return
        with pytest.raises(CheckpointError) as caught:
            find_format(reader, NAME, quantization)
    words = (NAME, f"stored as {form}", f"config.json.quantization_config declares {declared}", "model.safetensors")
    assert all(word in str(caught.value) for word in words)


def test_a_quantised_tensor_needs_a_declaration(tmp_path: Path) -> None:
    with (
        CheckpointReader(write_single(tmp_path, stored("mxfp8"))) as reader,
        pytest.raises(
            CheckpointError, match=r"stored as mxfp8 \(F8_E4M3\), but .*no quantization_config declares plain"
        ),
    ):
        find_format(reader, NAME)


def test_a_table_may_be_stored_either_way_unless_it_is_excluded(tmp_path: Path) -> None:
    plain = {"lm_head.weight": torch.ones(4, 64)}
    values, codes = quantise_mxfp8(torch.randn(4, 64))
    with CheckpointReader(write_single(tmp_path / "plain", plain)) as reader:
        assert find_format(reader, "lm_head.weight", Quantization(default="mxfp8")).name == "plain"
    folder = write_single(tmp_path / "mxfp8", {"lm_head.weight": values, "lm_head.weight_scale_inv": codes})
    with CheckpointReader(folder) as reader:
        assert find_format(reader, "lm_head.weight", Quantization(default="mxfp8")).name == "mxfp8"
        with pytest.raises(CheckpointError, match=r"lm_head.weight is stored as mxfp8"):
            find_format(reader, "lm_head.weight", Quantization(default="mxfp8", excluded=("lm_head",)))


@pytest.mark.parametrize(
    ("tensors", "dtype", "seems"),
    [
        ({"w": torch.ones(2, 32).to(torch.float8_e4m3fn), "w_scale": torch.ones(())}, "F8_E4M3", "other than MXFP8"),
        ({"w": torch.zeros(2, 2).to(torch.float8_e5m2)}, "F8_E5M2", "float8"),
        ({"w": torch.zeros(2, 2).byte(), "w_scale": torch.zeros(2, 1).byte()}, "U8", "MXFP4"),
        ({"w": torch.zeros(2, 2).char()}, "I8", "8-bit integer"),
        ({"w": torch.zeros(2, 2).int()}, "I32", "an unknown format"),
    ],
)
def test_other_formats_name_tensor_dtype_and_what_is_allowed(
    tmp_path: Path, tensors: dict[str, Tensor], dtype: str, seems: str
) -> None:
    with CheckpointReader(write_single(tmp_path, tensors)) as reader, pytest.raises(CheckpointError) as caught:
        find_format(reader, "w", Quantization(default="mxfp8"))
    for words in ("the tensor w is", f"stored as {dtype}", seems, "not supported yet", "MXFP8 and NVFP4", "bfloat16"):
        assert words in str(caught.value)


def test_a_tensor_that_is_not_there_is_missing(tmp_path: Path) -> None:
    with CheckpointReader(write_single(tmp_path, stored("nvfp4-m31"))) as reader:
        assert not has_stored(reader, "v")
        with pytest.raises(CheckpointError, match="the tensor v is missing"):
            find_format(reader, "v")
