"""Layers cut over ranks equal the layers of one rank: property 22, tensor parallel."""

from __future__ import annotations

import pytest
import torch

from slipstream.parallel.group import one_rank
from support.layer_jobs import LAYERS, run_all
from support.layer_parts import run_ranks
from support.rank_processes import run_processes


@pytest.fixture(scope="module")
def alone():
    return run_all(one_rank())


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory):
    return run_processes(2, run_all, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("layer", LAYERS)
def test_two_processes_equal_one_rank(alone, two_processes, layer):
    first, second = (results[layer] for results in two_processes)
    assert torch.equal(first, second), "ranks must hold the same bits"
    assert torch.allclose(first, alone[layer], atol=3e-6)


@pytest.fixture(scope="module", params=[2, 4, 8])
def threads(request):
    return run_ranks(request.param, run_all)


@pytest.mark.parametrize("layer", LAYERS)
def test_more_ranks_than_kv_heads_replicate_them(alone, threads, layer):
    """Two KV heads on 4 and 8 ranks: neighbours hold, store and choose for the same head."""
    for results in threads:
        assert torch.equal(results[layer], threads[0][layer])
        assert torch.allclose(results[layer], alone[layer], atol=3e-6)


def test_the_comparison_can_fail(alone):
    """Results are far from zero, so that the tolerance of the tests above means something."""
    for layer in LAYERS:
        assert alone[layer].abs().mean() > 0.02
