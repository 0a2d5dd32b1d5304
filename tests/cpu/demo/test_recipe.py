"""The training scripts at toy size: what is saved is what was trained, cut runs go on, the bias has work."""

from __future__ import annotations

import support.demo_recipe  # noqa: F401

# isort: split
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from checkpoint import SCALE_SUFFIX, is_quantised, load_target, save_target
from dataset import Mix, Part
from decoding import read
from draft_network import DraftNetwork
from geometry import TINY, draft_geometry
from network import Network
from quick_figures import without_bias
from rounding import dequantise
from safetensors.torch import load_file
from selection import replace_scores
from simulate_acceptance import propose
from train_base import BaseTrainer, Phase, Rows, TrainOptions, tail
from train_eagle3 import DraftOptions, DraftTrainer, SelfText, cut_batches

from slipstream.config.quantization.read import read_quantization

IDS = {"bos": 0, "eos": 1, "image": 2, "video": 3}
PHASES = (
    Phase("short", 0.5, 32, 4, 8, False),
    Phase("selected", 1.0, 96, 2, 8, True, needle_share=0.5),
)


def draw_part(seed: int, num_documents: int, length: int) -> Part:
    """Return documents of random ids."""
    source = np.random.default_rng(seed)
    stream = source.integers(4, 200, num_documents * length).astype(np.uint16)
    return Part(stream, np.arange(0, num_documents * length, length, dtype=np.int64))


@pytest.fixture(scope="module")
def mix() -> Mix:
    return Mix(draw_part(1, 400, 40), draw_part(2, 60, 96))


def new_trainer(folder: Path) -> BaseTrainer:
    options = TrainOptions(PHASES, folder, 7, torch.float32, False, save_every_s=1000.0)
    return BaseTrainer(TINY, torch.device("cpu"), options)


@pytest.fixture(scope="module")
def network() -> Network:
    network = Network(TINY)
    network.initialise(3)
    for block in network.blocks:
        block.mlp.requires_grad_(False)
    return network


def test_a_saved_target_is_the_rounded_one_that_was_trained(network: Network, tmp_path: Path) -> None:
    tokens = torch.randint(200, (2, 64), generator=torch.Generator().manual_seed(1))
    rows = torch.arange(4)
    with torch.no_grad():
        plain = network.logits(network(tokens, rows, True, torch.float32)[0])
        network.set_rounding(True)
        trained = network.logits(network(tokens, rows, True, torch.float32)[0])
        network.set_rounding(False)
    save_target(network, tmp_path, IDS, is_mxfp8=True)
    restored = load_target(tmp_path)
    for part in ("embed", "head", "final_norm"):
        getattr(restored, part).copy_(getattr(network, part).data)
    for mine, other in zip(restored.blocks, network.blocks, strict=True):
        for name, parameter in mine.named_parameters():
            if parameter.ndim == 1:
                parameter.copy_(dict(other.named_parameters())[name].data)
    stored = restored.logits(restored(tokens, rows, True, torch.float32)[0])
    assert torch.allclose(stored, trained, atol=1e-4)
    assert not torch.allclose(stored, plain, atol=1e-4)


def test_the_engine_reads_the_declared_format_of_every_tensor(network: Network, tmp_path: Path) -> None:
    save_target(network, tmp_path, IDS, is_mxfp8=True)
    declared = read_quantization(tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    names = [name for name in stored if not name.endswith(SCALE_SUFFIX)]
    for name in names:
        expected = ("mxfp8",) if name + SCALE_SUFFIX in stored else ("plain",)
        assert declared.declared(name) == expected, name
        assert (name + SCALE_SUFFIX in stored) == is_quantised(name)
    values = next(name for name in names if name.endswith("experts.0.w2.weight"))
    assert dequantise(stored[values], stored[values + SCALE_SUFFIX]).shape == (TINY.hidden_size, 32)


def test_a_run_that_is_cut_off_goes_on_where_it_was(mix: Mix, tmp_path: Path) -> None:
    first = new_trainer(tmp_path)
    first.budget_s = 1000.0
    assert not first.train(first.sources(mix), time.monotonic())
    second = new_trainer(tmp_path)
    assert second.resume()
    assert (second.step, second.num_tokens, second.budget_s) == (first.step, first.num_tokens, 1000.0)
    for name, tensor in first.network.state_dict().items():
        assert torch.equal(tensor, second.network.state_dict()[name])
    assert not second.train(second.sources(mix), time.monotonic())
    assert second.step == first.step + 1
    assert len(second.log) == second.step


def test_what_is_kept_for_evaluation_is_never_trained_on(mix: Mix, tmp_path: Path) -> None:
    kept = tail(mix.short)
    border = len(mix.short.stream) - len(kept.stream)
    assert 0 < len(kept.stream) <= 3000
    assert set(kept.starts + border) <= set(mix.short.starts)
    rows = new_trainer(tmp_path).sources(mix)["short"].short
    assert int(rows.starts.max()) + 32 < border


def test_there_is_nothing_to_resume_in_an_empty_folder(tmp_path: Path) -> None:
    assert not new_trainer(tmp_path).resume()


def test_long_rows_hold_the_share_of_needles_that_the_phase_asks_for(mix: Mix, tmp_path: Path) -> None:
    sources = new_trainer(tmp_path).sources(mix)
    rows = sources["selected"].next(2)
    starts = {tuple(mix.long.stream[start : start + 97].tolist()) for start in mix.long.starts}
    assert [tuple(row.tolist()) in starts for row in rows] == [True, False]


def test_text_that_is_too_short_for_a_row_is_refused() -> None:
    part = draw_part(3, 2, 20)
    with pytest.raises(ValueError, match="no rows of 64 tokens"):
        Rows(part, torch.from_numpy(part.stream.astype(np.int16)), 64, 1)


def test_a_written_mix_is_read_back_and_half_a_one_is_not(mix: Mix, tmp_path: Path) -> None:
    mix.save(tmp_path)
    found = Mix.load(tmp_path)
    assert found is not None
    assert np.array_equal(found.long.stream, mix.long.stream)
    (tmp_path / "mix_is_whole").unlink()
    assert Mix.load(tmp_path) is None


def test_balance_moves_the_bias_against_the_load(tmp_path: Path) -> None:
    trainer = new_trainer(tmp_path)
    sparse = [block.mlp for block in trainer.network.blocks if block.mlp.sparse]
    trainer.balance([torch.tensor([9, 1, 1, 1]) for _ in sparse], 0.5)
    assert all(mlp.bias.tolist() == [-0.5, 0.5, 0.5, 0.5] for mlp in sparse)
    with without_bias(trainer.network):
        assert not any(mlp.bias.any() for mlp in sparse)
    assert all(mlp.bias.any() for mlp in sparse)


def test_the_spread_loss_pulls_the_experts_mean_scores_apart(network: Network) -> None:
    mlp = network.blocks[1].mlp
    x = torch.randn(4, 32, TINY.hidden_size, generator=torch.Generator().manual_seed(2), requires_grad=True)
    loss = mlp.spread_loss(x)
    even = (torch.full_like(mlp.score_goal, 0.5) - mlp.score_goal).square().sum()
    assert loss.item() == pytest.approx(even.item(), rel=0.5)
    assert len(mlp.score_goal.unique()) == TINY.num_experts
    assert not loss.requires_grad or x.grad is None


def test_other_ways_to_choose_blocks_keep_hidden_ones_hidden() -> None:
    scores = torch.tensor([[[[3.0, 1.0, 2.0, float("-inf")]]]])
    assert replace_scores(scores, "local").flatten().tolist() == [0.0, 1.0, 2.0, float("-inf")]
    torch.manual_seed(0)
    drawn = replace_scores(scores, "random").flatten()
    assert drawn[3] == float("-inf")
    assert drawn[:3].unique().numel() == 3
    with pytest.raises(ValueError, match="learned, random and local"):
        replace_scores(scores, "best")


def test_batches_hold_every_text_once_and_mark_what_was_written() -> None:
    lengths = [5, 9, 7, 6, 12, 30, 8, 11]
    tokens = torch.zeros(8, 32, dtype=torch.int16)
    for row, length in enumerate(lengths):
        tokens[row, :length] = row + 1
    written = SelfText(tokens, torch.full((8,), 3), torch.tensor(lengths))
    batches = cut_batches(written, 40, 1)
    marked = sum(int(wanted.sum()) for _, wanted in batches)
    assert marked == sum(lengths) - 3 * 8
    assert sorted(ids[:, 0].tolist() for ids, _ in batches) != []
    assert sorted(row for ids, _ in batches for row in ids[:, 0].tolist()) == list(range(1, 9))
    assert all(ids.numel() <= 80 for ids, _ in batches)


def test_the_head_learns_the_tokens_that_it_will_draft(network: Network) -> None:
    """The agreement of step 1 is that of the drafts which the simulator makes from the same rows."""
    options = DraftOptions(1.0, 5, torch.float32, num_steps=3)
    trainer = DraftTrainer(network, draft_geometry(TINY), torch.arange(0, 2048, 2), options)
    assert isinstance(trainer.draft, DraftNetwork)
    tokens = torch.randint(200, (3, 32), generator=torch.Generator().manual_seed(4))
    lesson = trainer.read_lesson(tokens, torch.ones_like(tokens, dtype=torch.bool))
    _, agreement = trainer.loss(lesson)
    with torch.no_grad():
        drafts = propose(network, trainer.draft, tokens, 1, torch.float32)[..., 0]
        logits = network.logits(read(network, tokens, (), torch.float32)[0])
    favourites = logits[..., trainer.draft.kept_ids()].argmax(-1)
    same = [
        trainer.draft.kept_ids()[favourites[row, place]] == drafts[row, place - 1]
        for row in range(3)
        for place in range(3, 31)
        if trainer.draft.t2d[logits[row, place].argmax()]
    ]
    assert len(same) == lesson.places.numel() > 10
    assert agreement[0].item() == pytest.approx(sum(map(bool, same)) / len(same))


def test_a_head_that_is_cut_off_goes_on_where_it_was(network: Network, tmp_path: Path) -> None:
    options = DraftOptions(1.0, 5, torch.float32, tokens_per_step=64, num_steps=2)
    shape = draft_geometry(TINY)
    tokens = torch.randint(1, 200, (6, 20), dtype=torch.int16)
    written = SelfText(tokens, torch.full((6,), 4), torch.full((6,), 20))
    first = DraftTrainer(network, shape, torch.arange(0, 1024), options)
    first.budget_s = 1000.0
    assert not first.train(*first.lessons(written, None), tmp_path, time.monotonic())
    second = DraftTrainer(network, shape, torch.arange(0, 1024), options)
    assert second.resume(tmp_path)
    assert (second.num_steps, second.budget_s, second.log) == (1, 1000.0, first.log)
    for name, tensor in first.draft.state_dict().items():
        assert torch.equal(tensor, second.draft.state_dict()[name])
