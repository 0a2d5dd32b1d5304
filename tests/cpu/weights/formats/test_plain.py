from pathlib import Path

import torch

from slipstream.weights.formats.interface import Format
from slipstream.weights.formats.plain import Plain
from slipstream.weights.reader import CheckpointReader
from support.tiny_tensors import write_single


def test_plain_gives_the_stored_values(tmp_path: Path) -> None:
    values = torch.randn(3, 4).bfloat16()
    plain: Format = Plain()
    with CheckpointReader(write_single(tmp_path, {"w": values})) as reader:
        assert plain.stored_names("w") == ("w",)
        assert plain.shape(reader, "w") == (3, 4)
        assert torch.equal(plain.read(reader, "w", (slice(1, 2),)), values[1:2])
