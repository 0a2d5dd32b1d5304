from pathlib import Path

import pytest
import torch

from slipstream.base.errors import CheckpointError
from slipstream.weights.formats.find import find_format, has_stored
from slipstream.weights.reader import CheckpointReader
from support.tiny_tensors import write_single


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_plain_dtypes_are_plain(tmp_path: Path, dtype: torch.dtype) -> None:
    with CheckpointReader(write_single(tmp_path, {"w": torch.ones(2, 2, dtype=dtype)})) as reader:
        assert find_format(reader, "w").name == "plain"


@pytest.mark.parametrize(
    ("dtype", "stored", "format_name"),
    [
        (torch.float8_e4m3fn, "F8_E4M3", "MXFP8"),
        (torch.float8_e5m2, "F8_E5M2", "float8"),
        (torch.uint8, "U8", "NVFP4 or MXFP4"),
        (torch.int8, "I8", "8-bit integer"),
        (torch.int32, "I32", "an unknown format"),
    ],
)
def test_other_dtypes_name_tensor_dtype_and_format(
    tmp_path: Path, dtype: torch.dtype, stored: str, format_name: str
) -> None:
    with (
        CheckpointReader(write_single(tmp_path, {"layer.w": torch.zeros(2, 2).to(dtype)})) as reader,
        pytest.raises(CheckpointError) as caught,
    ):
        find_format(reader, "layer.w")
    for words in ("layer.w", f"stored as {stored}", format_name, "not supported yet", "bfloat16"):
        assert words in str(caught.value)


def test_a_packed_tensor_is_recognised_by_its_name(tmp_path: Path) -> None:
    packed = {"w_packed": torch.zeros(2, 2, dtype=torch.uint8), "w_scale": torch.ones(2)}
    with CheckpointReader(write_single(tmp_path, packed)) as reader:
        assert has_stored(reader, "w")
        assert not has_stored(reader, "v")
        with pytest.raises(CheckpointError, match=r"w_packed is stored as U8"):
            find_format(reader, "w")
