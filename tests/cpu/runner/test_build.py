from __future__ import annotations

import pytest
import torch

from slipstream.base.errors import CheckpointError
from slipstream.cli.settings import settle
from slipstream.config.explain import geometry_of
from slipstream.config.options import Options
from slipstream.runner.build import build_runner
from slipstream.wire.messages import Progress
from support.tiny_checkpoints import make_tiny_checkpoint, make_tiny_eagle3, write_tiny_config


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def small(folder, **options):
    return settle(Options(model=str(folder), max_model_len=64, max_num_seqs=2, **options))


@pytest.mark.parametrize("drafter", ["none", "ngram", "eagle3"])
def test_what_is_built_is_what_is_explained(tmp_path, threads, drafter):
    folder = make_tiny_checkpoint(tmp_path / "target")
    make_tiny_eagle3(folder / "eagle3", small(folder, drafter="none").model.target, aux_layer_ids=(0, 1, 2))
    config = small(folder, drafter=drafter, threads=1)
    seen: list[Progress] = []
    built = build_runner(config, seen.append)
    assert built.geometry == geometry_of(config)
    stages = ["target weights", "drafter weights"] if drafter == "eagle3" else ["target weights"]
    assert list(dict.fromkeys(progress.stage for progress in seen)) == stages
    assert torch.get_num_threads() == 1


def test_a_checkpoint_without_weights_is_refused(tmp_path, threads):
    with pytest.raises(CheckpointError, match="safetensors"):
        build_runner(small(write_tiny_config(tmp_path / "bare"), threads=1), lambda progress: None)
