"""The account that planner and `explain` use is what the runner allocates, to the byte."""

from pathlib import Path
from typing import Any

import pytest
import torch

from slipstream.cache.physical.pools import PagePools
from slipstream.config.checkpoint import read_target
from slipstream.config.explain import geometry_of
from slipstream.config.hardware import Hardware
from slipstream.config.options import Options
from slipstream.config.resolve import resolve
from slipstream.runner.build import build_runner
from support.tiny_checkpoints import make_tiny_checkpoint, make_tiny_eagle3

HARDWARE = Hardware(num_cpus=1, total_memory_bytes=2**34, available_memory_bytes=2**33)


@pytest.mark.parametrize(
    "options",
    [{"drafter": "none"}, {"drafter": "ngram"}, {"drafter": "eagle3"}, {"draft_len": 0}, {"dtype": "bfloat16"}],
    ids=str,
)
def test_allocated_bytes_are_the_explained_ones(tmp_path: Path, options: dict[str, Any]) -> None:
    folder = make_tiny_checkpoint(tmp_path / "model")
    make_tiny_eagle3(folder / "eagle3", read_target(folder), num_kv_heads=4)
    config = resolve(Options(model=str(folder), max_num_seqs=2, max_model_len=64, threads=1, **options), HARDWARE)
    geometry = geometry_of(config)
    built = build_runner(config, lambda _: None)
    assert built.geometry == geometry
    assert PagePools(geometry, torch.device("cpu")).num_bytes == geometry.total_bytes
