"""Building the configured drafter, and saying in advance what it needs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from slipstream.base.errors import ConfigError
from slipstream.config.schema import SpeculationSection
from slipstream.parallel.group import one_rank
from slipstream.speculation.interface import Drafter
from slipstream.speculation.registry import build_drafter, drafter_spec
from support.eagle3_rig import make_head, make_tables


def section(drafter: str, **fields: object) -> SpeculationSection:
    values: dict = {
        "drafter": drafter,
        "drafter_path": None,
        "eagle3": None,
        "draft_len": 0 if drafter == "none" else 4,
        "verification": "coupled",
        "ngram_max": 3,
        "ngram_min": 1,
    }
    return SpeculationSection(**values | fields)


def build(chosen: SpeculationSection, **more: object) -> Drafter:
    return build_drafter(
        chosen, make_tables(), group=one_rank(), dtype=torch.float32, device="cpu", max_model_len=64, **more
    )


@pytest.mark.parametrize("name", ["none", "ngram"])
def test_drafters_without_weights(name: str):
    drafter = build(section(name))
    assert drafter.spec.name == name
    assert drafter.spec == drafter_spec(section(name))


def test_eagle3_is_loaded_from_its_folder(tmp_path: Path):
    head = make_head(tmp_path)
    chosen = section("eagle3", drafter_path=str(tmp_path), eagle3=head)
    seen: list[tuple[int, int]] = []
    drafter = build(chosen, on_progress=lambda done, total: seen.append((done, total)))
    assert drafter.spec == drafter_spec(chosen)
    assert drafter.spec.aux_layer_ids == head.aux_layer_ids
    assert (drafter.spec.num_kv_heads, drafter.spec.head_dim) == (head.num_kv_heads, head.head_dim)
    assert seen[-1][0] == seen[-1][1] > 0


def test_eagle3_without_a_folder_is_refused(tmp_path: Path):
    head = make_head(tmp_path)
    for chosen in (section("eagle3", eagle3=head), section("eagle3", drafter_path=str(tmp_path))):
        with pytest.raises(ConfigError, match="drafter_path"):
            build(chosen)
        with pytest.raises(ConfigError, match="drafter_path"):
            drafter_spec(chosen)
