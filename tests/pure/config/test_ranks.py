"""The widths that configuration allows are those that the layers can be cut to."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import msgspec
import pytest

from slipstream.base.errors import ConfigError
from slipstream.config.checkpoint import read_target
from slipstream.config.drafter import read_eagle3
from slipstream.config.ranks import check_width, find_obstacle
from slipstream.config.schema import TargetSpec
from slipstream.parallel.mesh import Mesh
from support.tiny_checkpoints import tiny_eagle3_config, write_tiny_config


@pytest.fixture
def target(tmp_path: Path) -> TargetSpec:
    return read_target(write_tiny_config(tmp_path / "tiny"))


def can_be_cut(spec: TargetSpec, tp_size: int) -> bool:
    """Whether a rank can take its share of every axis, as the layers ask the mesh for it."""
    mesh = Mesh(tp_size, 0)
    with contextlib.suppress(ConfigError):
        mesh.vocabulary(spec.vocab_size)
        mesh.query_heads(spec.num_heads, spec.num_kv_heads)
        for size in (
            spec.dense_intermediate_size,
            spec.expert_intermediate_size,
            spec.shared_intermediate_size,
        ):
            mesh.columns(size, "columns")
        return True
    return False


@pytest.mark.parametrize("num_kv_heads", [1, 2, 4, 8])
def test_it_allows_what_the_mesh_can_cut(target: TargetSpec, num_kv_heads: int) -> None:
    spec = msgspec.structs.replace(target, num_kv_heads=num_kv_heads)
    allowed = [width for width in range(1, 17) if find_obstacle(spec, None, width) is None]
    assert allowed == [width for width in range(1, 17) if can_be_cut(spec, width)]
    assert allowed == [1, 2, 4, 8]


@pytest.mark.parametrize(
    ("axis", "size", "words"),
    [
        ("vocab_size", 161, "vocab_size=161 does not divide among 2 ranks"),
        ("num_heads", 7, "num_heads=7"),
        ("num_kv_heads", 3, "num_kv_heads=3 neither divides among 2 ranks nor divides 2"),
        ("dense_intermediate_size", 95, "dense_intermediate_size=95"),
        ("expert_intermediate_size", 47, "expert_intermediate_size=47"),
        ("shared_intermediate_size", 39, "shared_intermediate_size=39"),
    ],
)
def test_an_axis_that_does_not_divide_is_refused_and_never_padded(
    target: TargetSpec, axis: str, size: int, words: str
) -> None:
    spec = msgspec.structs.replace(target, **{axis: size})
    with pytest.raises(ConfigError, match=f"tp=2: {words}.*allows tp of 1"):
        check_width(spec, None, 2)
    check_width(spec, None, 1)


@pytest.mark.parametrize(
    ("axis", "size"), [("draft_vocab_size", 95), ("num_heads", 7), ("num_kv_heads", 3), ("intermediate_size", 33)]
)
def test_the_head_of_a_drafter_is_cut_too(tmp_path: Path, target: TargetSpec, axis: str, size: int) -> None:
    (tmp_path / "config.json").write_text(json.dumps(tiny_eagle3_config(target)))
    head = read_eagle3(tmp_path, target).spec
    check_width(target, head, 2)
    with pytest.raises(ConfigError, match=f"tp=2: {axis} of the head={size}"):
        check_width(target, msgspec.structs.replace(head, **{axis: size}), 2)
