"""Tuning the index: what it changes on disk, what its loss rewards, and that it attends as the target does."""

from __future__ import annotations

import support.demo_recipe  # noqa: F401

# isort: split
from pathlib import Path

import pytest
import torch
from checkpoint import load_target, save_target
from geometry import TINY
from index_lesson import (
    QUESTION_TOKENS,
    TuneOptions,
    block_loss,
    block_scores,
    draw_queries,
    keep_best,
)
from network import Network
from safetensors.torch import load_file
from torch import Tensor
from tune_index import index_parameters, save_index, tune

IDS = {"bos": 0, "eos": 1, "image": 2, "video": 3}
MARKERS = (2, 3)


def draw_rows(batch: int) -> Tensor:
    """Return rows of random ids, one token longer than what is read."""
    return torch.randint(4, 200, (batch, 129), generator=torch.Generator().manual_seed(4))


@pytest.fixture(params=[True, False], ids=["mxfp8", "bf16"])
def finished(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    network = Network(TINY)
    network.initialise(3)
    save_target(network, tmp_path / "finished", IDS, is_mxfp8=request.param)
    return tmp_path / "finished"


def test_only_the_tensors_of_the_index_change(finished: Path, tmp_path: Path) -> None:
    network = load_target(finished)
    tokens, rows = draw_rows(2)[:, :-1], torch.arange(4)
    full_before = network(tokens, rows, False, torch.float32)[0]
    selected_before = network(tokens, rows, True, torch.float32)[0]
    log = tune(network, draw_rows, MARKERS, TuneOptions(60.0, 4, batch=2, length=128, num_queries=64, matrix_rate=0.1))
    assert log[0]["missed"] > 0
    assert log[0]["index_loss"] > 0
    save_index(network, finished, tmp_path / "tuned")

    before, after = (load_file(folder / "model.safetensors") for folder in (finished, tmp_path / "tuned"))
    assert before.keys() == after.keys()
    changed = {
        name for name in before if not torch.equal(before[name].view(torch.uint8), after[name].view(torch.uint8))
    }
    assert all(".index_" in name for name in changed)
    for layer in range(TINY.num_dense_layers, TINY.num_layers):
        assert any(f"layers.{layer}.self_attn.index_q_proj" in name for name in changed)
        assert any(f"layers.{layer}.self_attn.index_k_proj" in name for name in changed)
    assert (finished / "config.json").read_bytes() == (tmp_path / "tuned" / "config.json").read_bytes()

    tuned = load_target(tmp_path / "tuned")
    assert torch.equal(tuned(tokens, rows, False, torch.float32)[0], full_before)
    assert not torch.equal(tuned(tokens, rows, True, torch.float32)[0], selected_before)


def test_tuning_makes_the_selection_miss_less(tmp_path: Path) -> None:
    network = Network(TINY)
    network.initialise(5)
    for block in network.blocks:  # sharp attention, so that there is something to find
        block.attention.q_norm.data.add_(4.0)
    options = TuneOptions(600.0, 60, batch=2, length=128, num_queries=64, matrix_rate=1e-2)
    log = tune(network, draw_rows, MARKERS, options)
    assert log[-1]["index_loss"] < 0.9 * log[0]["index_loss"]
    assert log[-1]["missed"] < 0.9 * log[0]["missed"]
    assert all(not parameter.requires_grad for parameter in index_parameters(network).values())


def test_the_chosen_blocks_are_those_of_the_network() -> None:
    network = Network(TINY)
    network.initialise(6)
    attention = network.blocks[1].attention
    x = torch.randn(2, 128, TINY.hidden_size, generator=torch.Generator().manual_seed(1))
    positions = torch.arange(128)[None]
    table = network.rotary(positions[0])
    with torch.no_grad():
        index_q, index_k = attention.index_queries(x, table), attention.index_keys(x, table)
        expected = attention.choose(index_q, index_k, positions)
        size = TINY.index_block_size
        keep = keep_best(block_scores(index_q, index_k, positions, size), TINY.topk_blocks - TINY.num_local_blocks)
    own = torch.arange(128 // size) == (positions // size)[..., None]
    visible = (keep | own[:, None]).repeat_interleave(size, -1) & (positions <= positions[0][:, None])
    assert torch.equal(visible, expected)


def test_the_loss_is_least_where_scores_follow_the_attention() -> None:
    mass = torch.tensor([0.05, 0.5, 0.1, 0.2, 0.15]).view(1, 1, 1, 5)
    hidden = torch.tensor([0.0, 0.0, 0.0, 0.0, float("-inf")])
    right, wrong = mass.log() + hidden, -mass.log() + hidden
    best, missed, needless = block_loss(mass, right, 2, 0.0)
    assert best.item() == pytest.approx(0.0, abs=1e-5)
    assert (missed.item(), needless.item()) == pytest.approx((0.15, 0.0), abs=1e-6)
    worse, missed, needless = block_loss(mass, wrong, 2, 0.0)
    assert (missed.item(), needless.item()) == pytest.approx((0.7, 0.55), abs=1e-6)
    assert worse > 0.5
    assert [value.item() for value in block_loss(mass, wrong, 4, 1.0)] == [0.0, 0.0, 0.0]


def test_the_margin_wants_read_blocks_past_the_border() -> None:
    mass = torch.tensor([0.1, 0.6, 0.2, 0.1]).view(1, 1, 1, 4)
    scores = torch.tensor([3.0, 0.0, 1.0, 2.0]).view(1, 1, 1, 4).requires_grad_()
    margin = block_loss(mass, scores, 1, 1.0)[0] - block_loss(mass, scores, 1, 0.0)[0]
    expected = (0.6 - 0.2) * torch.nn.functional.softplus(torch.tensor(2.5 - 0.0))
    assert margin.item() == pytest.approx(expected.item(), rel=1e-5)
    margin.backward()
    assert scores.grad is not None
    assert scores.grad.flatten()[1] < 0 < scores.grad.flatten()[0]


def test_a_query_that_reads_everything_alike_has_no_margin() -> None:
    mass = torch.full((1, 1, 1, 6), 0.1)
    scores = torch.randn(1, 1, 1, 6, generator=torch.Generator().manual_seed(1))
    assert block_loss(mass, scores, 2, 1.0)[0] == block_loss(mass, scores, 2, 0.0)[0]


def test_questions_and_answers_are_looked_at_first() -> None:
    tokens = torch.full((1, 200), 9)
    tokens[0, 5], tokens[0, 150] = MARKERS
    drawn = draw_queries(tokens, *MARKERS, QUESTION_TOKENS + 1, torch.Generator().manual_seed(2))
    assert sorted(drawn[0].tolist()) == list(range(150 - QUESTION_TOKENS, 151))
    everything = draw_queries(tokens, *MARKERS, 500, torch.Generator().manual_seed(2))
    assert sorted(everything[0].tolist()) == list(range(200))
