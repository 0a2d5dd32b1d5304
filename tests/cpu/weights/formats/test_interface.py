"""The seam holds for a format of two stored tensors: payload and scale become one logical tensor."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from slipstream.base.errors import EngineError
from slipstream.weights import loader, manifest
from slipstream.weights.formats.interface import check_whole_groups, group_source
from slipstream.weights.reader import CheckpointReader
from slipstream.weights.rules import SourceIndex, WeightRule
from support.tiny_tensors import write_single


class Scaled:
    """value = integer * scale of its row: what a quantised format will look like."""

    name = "scaled"

    def stored_names(self, name: str) -> tuple[str, ...]:
        return (name, f"{name}_scale")

    def unused_names(self, name: str) -> dict[str, str]:
        return {}

    def shape(self, reader: CheckpointReader, name: str) -> tuple[int, ...]:
        return reader.shape(name)

    def read(self, reader: CheckpointReader, name: str, source: SourceIndex) -> Tensor:
        return reader.read(name, source).float() * reader.read(f"{name}_scale", source[:1])


def test_a_scaled_format_fits_through_the_seam(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "find_format", lambda _reader, _name, _quantization: Scaled())
    payload, scale = torch.arange(8, dtype=torch.int8).view(4, 2), torch.tensor([[1.0], [2.0], [3.0], [4.0]])
    parameter = torch.zeros(2, 2)
    with CheckpointReader(write_single(tmp_path, {"w": payload, "w_scale": scale})) as reader:
        rule = WeightRule("p", "w", (4, 2), (slice(2, 4), slice(None)))
        report = loader.load_weights({"p": parameter}, [rule], reader)
    assert torch.equal(parameter, (payload.float() * scale)[2:])
    assert report.ignored == ()


@pytest.mark.parametrize(("start", "stop"), [(0, 16), (0, 5), (7, 9), (3, 16), (8, 12), (4, 8), (6, 6), (16, 16)])
def test_a_part_is_widened_to_whole_groups_and_trimmed_again(start: int, stop: int) -> None:
    values = torch.arange(48).view(3, 16)
    found = group_source((3, 16), (slice(1, 3), slice(start, stop)), 4)
    wide = values[found.columns(4)]
    assert wide.shape[1] == 4 * (found.last - found.first) < stop - start + 8
    assert torch.equal(wide[..., found.trim], values[1:3, start:stop])
    # Two places for a group of four columns, and one scale.
    assert torch.equal(values[:, ::2][found.columns(2)], wide[:, ::2])
    assert values[:, ::4][found.groups].shape == (2, found.last - found.first)


def test_axes_that_are_not_named_are_taken_whole_and_steps_are_refused() -> None:
    assert group_source((3, 16), (), 4).groups == (slice(0, 3), slice(0, 4))
    with pytest.raises(EngineError, match="contiguous"):
        group_source((3, 16), (slice(None), slice(0, 16, 2)), 4)


def test_stored_parts_are_only_given_for_whole_groups() -> None:
    check_whole_groups(group_source((3, 16), (slice(1, 2), slice(4, 12)), 4), 4, "w")
    with pytest.raises(EngineError, match="parts of w .* cut a group of 4"):
        check_whole_groups(group_source((3, 16), (slice(1, 2), slice(4, 11)), 4), 4, "w")
