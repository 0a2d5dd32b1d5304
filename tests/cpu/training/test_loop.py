from __future__ import annotations

import msgspec
import pytest
import torch

from slipstream.training.data.batches import SimilarLengths
from slipstream.training.loop import Loop, LoopPaths, make_optimiser, peak_rate, rate_at
from slipstream.training.settings import Budget, TrainSettings
from support.train_world import make_features, make_head, make_texts

SETTINGS = TrainSettings(
    max_length=24, batch_tokens=48, budget=Budget(unit="steps", amount=12), warm_up_steps=2, log_every=4
)


class Killed(BaseException):
    """The process is gone."""


def make_loop(path, settings=SETTINGS, *, die_at=None, every_s=0.0, rows=None, peak=5e-3):
    batches = SimilarLengths(make_texts(30), settings.batch_tokens, settings.seed)

    def batch(number):
        if number == die_at:
            raise Killed
        return batches.batch(number)

    return Loop(
        make_head(0),
        lambda tokens: make_features(tokens.lengths, seed=tokens.num_tokens, is_learnable=True),
        batch,
        settings,
        peak=peak,
        device=torch.device("cpu"),
        paths=LoopPaths(path, "run", every_s),
        on_row=lambda row, progress: None if rows is None else rows.append((row, progress)),
    )


def weights(loop):
    return torch.cat([parameter.detach().flatten() for parameter in loop.trainer.module.parameters()])


@pytest.mark.parametrize("die_at", [3, 5, 8, 11])
def test_a_run_that_was_killed_ends_with_the_same_weights_and_the_same_log(tmp_path, die_at):
    straight = make_loop(tmp_path / "straight")
    straight.run()
    killed = make_loop(tmp_path / "killed", die_at=die_at)
    with pytest.raises(Killed):
        killed.run()
    again = make_loop(tmp_path / "killed")
    assert again.state.step == die_at // 4 * 4
    state = again.run()
    assert torch.equal(weights(again), weights(straight))
    assert [(r.step, r.tokens, r.loss, r.reached) for r in state.rows] == [
        (r.step, r.tokens, r.loss, r.reached) for r in straight.state.rows
    ]


def test_going_on_after_the_end_does_nothing(tmp_path):
    first = make_loop(tmp_path / "c")
    first.run()
    again = make_loop(tmp_path / "c", die_at=12)
    assert again.run().step == 12
    assert torch.equal(weights(again), weights(first))


def test_the_loss_falls(tmp_path):
    longer = msgspec.structs.replace(SETTINGS, budget=Budget(unit="steps", amount=60), log_every=20)
    rows = []
    make_loop(tmp_path / "c", longer, every_s=1e9, rows=rows, peak=0.03).run()
    losses = [row.loss for row, _ in rows]
    assert losses[-1] < 0.7 * losses[0]
    assert rows[-1][0].acceptance_length > rows[0][0].acceptance_length + 0.3
    assert [progress for _, progress in rows] == pytest.approx([1 / 3, 2 / 3, 1])


def test_a_budget_of_tokens_or_minutes_ends_a_run(tmp_path):
    tokens = make_loop(tmp_path / "a", msgspec.structs.replace(SETTINGS, budget=Budget(unit="tokens", amount=100)))
    state = tokens.run()
    assert 100 <= state.tokens < 100 + SETTINGS.batch_tokens
    assert state.rows[-1].step == state.step
    minutes = make_loop(tmp_path / "b", msgspec.structs.replace(SETTINGS, budget=Budget(unit="minutes", amount=1e-3)))
    assert minutes.run().seconds >= 0.06


def test_checkpoints_come_when_they_are_due(tmp_path):
    path = tmp_path / "c"
    with pytest.raises(Killed):
        make_loop(path, die_at=11, every_s=1e9).run()
    assert not path.exists()


def test_the_rate_warms_up_and_falls_to_zero():
    rates = [rate_at(1.0, 9, step, step / 100) for step in range(101)]
    assert rates[0] == pytest.approx(0.1, rel=1e-3)
    assert max(rates) == rates[9] > 0.97
    assert rates[50] == pytest.approx(0.5)
    assert rates[100] == pytest.approx(0.0)
    assert rate_at(1.0, 0, 0, 0.0) == 1.0


def test_the_peak_follows_the_width_unless_it_is_given():
    assert peak_rate(SETTINGS, 256) == pytest.approx(2e-3, rel=0.05)
    assert peak_rate(SETTINGS, 6144) == pytest.approx(8e-5, rel=0.05)
    assert peak_rate(msgspec.structs.replace(SETTINGS, peak_rate=0.1), 256) == 0.1


def test_norms_are_not_decayed():
    matrices, norms = make_optimiser(make_head(), torch.device("cpu")).param_groups
    assert matrices["weight_decay"] > 0 == norms["weight_decay"]
    assert {p.ndim for p in matrices["params"]} == {2}
    assert {p.ndim for p in norms["params"]} == {1}
