"""The seam holds for a format of two stored tensors: payload and scale become one logical tensor."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from slipstream.weights import loader, manifest
from slipstream.weights.reader import CheckpointReader
from slipstream.weights.rules import SourceIndex, WeightRule
from support.tiny_tensors import write_single


class Scaled:
    """value = integer * scale of its row: what a quantised format will look like."""

    name = "scaled"

    def stored_names(self, name: str) -> tuple[str, ...]:
        return (name, f"{name}_scale")

    def shape(self, reader: CheckpointReader, name: str) -> tuple[int, ...]:
        return reader.shape(name)

    def read(self, reader: CheckpointReader, name: str, source: SourceIndex) -> Tensor:
        return reader.read(name, source).float() * reader.read(f"{name}_scale", source[:1])


def test_a_scaled_format_fits_through_the_seam(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "find_format", lambda _reader, _name: Scaled())
    payload, scale = torch.arange(8, dtype=torch.int8).view(4, 2), torch.tensor([[1.0], [2.0], [3.0], [4.0]])
    parameter = torch.zeros(2, 2)
    with CheckpointReader(write_single(tmp_path, {"w": payload, "w_scale": scale})) as reader:
        rule = WeightRule("p", "w", (4, 2), (slice(2, 4), slice(None)))
        report = loader.load_weights({"p": parameter}, [rule], reader)
    assert torch.equal(parameter, (payload.float() * scale)[2:])
    assert report.ignored == ()
