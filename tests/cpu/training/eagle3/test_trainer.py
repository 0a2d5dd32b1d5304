"""The unrolled loss against the same sum written down start by start."""

from __future__ import annotations

import pytest
import torch

from slipstream.training.eagle3.trainer import build_eagle3
from slipstream.training.interface import DraftTrainer
from slipstream.training.settings import TrainSettings
from support.train_world import KEPT, make_features, make_head, make_target

LENGTHS = (11, 6)


def naive_loss(trainer, batch, *, shift=0, step_weight=0.8):
    """Run every start alone, over a sequence of its own; return the loss and the counts of right drafts."""
    network, num_steps = trainer.module, 3
    totals, weights = [torch.zeros(()) for _ in range(num_steps)], [0] * num_steps
    reached, num_starts = [0] * num_steps, 0
    for row, length in enumerate(LENGTHS):
        written = batch.is_written[row].tolist() + [False] * 10
        for start in range(length - 1):
            is_right = written[start + 2]
            num_starts += is_right
            for step in range(num_steps):
                place = start + 1 + step
                if place >= length - 1 + shift or not written[place + 1]:
                    is_right = False
                    continue
                logits = chain(network, batch, row, start, step)
                goal = batch.kept_probs[row, place - shift]
                favourite = batch.favourites[row, place - shift].item()
                is_right = is_right and KEPT[logits.argmax()].item() == favourite
                reached[step] += is_right
                if favourite in KEPT.tolist():
                    totals[step] = totals[step] - (goal * logits.log_softmax(-1)).sum()
                    weights[step] += 1
    loss = sum(step_weight**i * t / max(w, 1) for i, (t, w) in enumerate(zip(totals, weights, strict=True)))
    return loss, reached, num_starts


def chain(network, batch, row, start, last_step):
    """Return the logits of one start at one step: its fresh rows, then its own drafts, one text long."""
    fresh = start + 1
    keys, values = [], []
    state = network.fuse(batch.taps[row : row + 1, :fresh])
    for step in range(last_step + 1):
        entering = batch.embeddings[row : row + 1, 1 + step : 1 + step + fresh]
        missing = fresh - entering.shape[1]
        entering = torch.nn.functional.pad(entering, (0, 0, 0, missing))
        logits, state = network.step(state, entering, torch.arange(fresh) + step, keys, values)
    return logits[0, -1]


@pytest.fixture
def trainer():
    return make_head(seed=3)


def gradients(trainer, loss):
    trainer.module.zero_grad()
    loss.backward()
    return {name: p.grad.clone() for name, p in trainer.module.named_parameters()}


def test_loss_counts_and_gradients_are_those_of_starts_run_alone(trainer):
    batch = make_features(LENGTHS)
    result = trainer.loss(batch)
    loss, reached, num_starts = naive_loss(trainer, batch)
    torch.testing.assert_close(result.loss, loss, atol=1e-5, rtol=1e-5)
    assert result.num_reached.tolist() == reached
    assert result.num_starts.item() == num_starts
    ours, theirs = gradients(trainer, trainer.loss(batch).loss), gradients(trainer, naive_loss(trainer, batch)[0])
    for name, gradient in ours.items():
        assert gradient.abs().max() > 0, name
        torch.testing.assert_close(gradient, theirs[name], atol=2e-5, rtol=1e-3, msg=name)


def test_a_goal_that_is_off_by_one_or_another_weight_is_noticed(trainer):
    batch = make_features(LENGTHS)
    loss = trainer.loss(batch).loss
    assert (loss - naive_loss(trainer, batch, shift=1)[0]).abs() > 1e-2
    assert (loss - naive_loss(trainer, batch, step_weight=0.7)[0]).abs() > 1e-2


def test_right_drafts_are_counted_up_to_the_first_wrong_one():
    trainer = make_head(seed=1)
    batch = make_features((40,), seed=5)
    with torch.no_grad():
        keys, values, state = [], [], trainer.module.fuse(batch.taps[:, :-1])
        logits, _ = trainer.module.step(state, batch.embeddings[:, 1:], torch.arange(39), keys, values)
    favourites = batch.favourites.clone()
    favourites[0, 1:] = KEPT[logits.argmax(-1)[0]]
    told = type(batch)(**{name: getattr(batch, name) for name in batch.__slots__} | {"favourites": favourites})
    result = trainer.loss(told)
    assert result.num_reached[0] == result.num_starts == 40 - 2
    assert result.num_reached[0] > result.num_reached[1] >= result.num_reached[2]


def test_tokens_that_cannot_be_drafted_count_as_wrong_and_weigh_nothing(trainer):
    batch = make_features(LENGTHS)
    favourites = torch.full_like(batch.favourites, 1)
    assert 1 not in KEPT
    told = type(batch)(**{name: getattr(batch, name) for name in batch.__slots__} | {"favourites": favourites})
    result = trainer.loss(told)
    assert result.loss.item() == 0
    assert result.num_reached.tolist() == [0, 0, 0]
    assert result.num_starts.item() > 0


def test_bfloat16_products_and_features_leave_the_loss_and_its_gradients_in_float32(trainer):
    batch = make_features(LENGTHS)
    exact = gradients(trainer, trainer.loss(batch).loss)
    wide = ("taps", "embeddings", "kept_probs")
    fields = {name: getattr(batch, name) for name in batch.__slots__}
    narrow = type(batch)(**fields | {name: fields[name].bfloat16() for name in wide})
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = trainer.loss(narrow).loss
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, trainer.loss(batch).loss, rtol=0.02, atol=0)
    for name, gradient in gradients(trainer, loss).items():
        assert gradient.dtype == torch.float32
        assert (gradient - exact[name]).norm() < 0.1 * exact[name].norm(), name


def test_a_new_head_starts_from_the_targets_output_rows(tmp_path):
    _, target = make_target(tmp_path)

    class Tables:
        def head_rows(self, token_ids):
            return token_ids[:, None].float().expand(-1, target.hidden_size)

    kept = torch.tensor([4, 9, 11])
    settings = TrainSettings(max_length=64, batch_tokens=64)
    trainer: DraftTrainer = build_eagle3(target, Tables(), kept, settings, torch.device("cpu"))
    assert trainer.module.lm_head.weight[:, 0].tolist() == [4, 9, 11]
    again = build_eagle3(target, Tables(), kept, settings, torch.device("cpu"))
    for one, other in zip(trainer.module.parameters(), again.module.parameters(), strict=True):
        assert torch.equal(one, other)
    assert trainer.tap_layers == again.tap_layers
    assert trainer.kept_ids.tolist() == [4, 9, 11]
