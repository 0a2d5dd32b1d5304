"""Two and four ranks over gloo compute what one rank computes. Four ranks replicate each of the two KV heads."""

from pathlib import Path
from typing import Any

import pytest
import torch

from support.m3_ranks import TAPS, run_ranks, run_scenario
from support.m3_world import load_target
from support.tiny_checkpoints import make_tiny_checkpoint

TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_checkpoint(tmp_path_factory.mktemp("tp") / "model")


@pytest.fixture(scope="module", params=[2, 4])
def ranks(
    request: pytest.FixtureRequest, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, Any]]:
    return run_ranks(folder, request.param, tmp_path_factory.mktemp("ranks"))


def test_ranks_agree_with_one_rank_and_to_the_bit_with_each_other(folder: Path, ranks: list[dict[str, Any]]) -> None:
    alone = run_scenario(load_target(folder, aux_layer_ids=TAPS))
    for seen in ranks:
        assert torch.equal(seen["logits"], ranks[0]["logits"])
        assert torch.equal(seen["taps"], ranks[0]["taps"])
    assert alone["logits"].abs().max() > 5.0
    assert (ranks[0]["logits"] - alone["logits"]).abs().max() <= TOLERANCE
    assert (ranks[0]["taps"] - alone["taps"]).abs().max() <= TOLERANCE
    num_kv_heads = alone["chosen"].shape[1]
    for rank, seen in enumerate(ranks):
        first = rank * num_kv_heads // len(ranks)
        held = alone["chosen"][:, first : first + seen["chosen"].shape[1]]
        assert torch.equal(seen["chosen"], held)
