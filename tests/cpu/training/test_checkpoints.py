from __future__ import annotations

import pytest
import torch

from slipstream.base.errors import ConfigError
from slipstream.training.checkpoints import LogRow, TrainState, load_checkpoint, log_as_csv, save_checkpoint
from slipstream.training.loop import make_optimiser
from support.train_world import make_features, make_head

ROW = LogRow(step=2, tokens=30, seconds=1.5, loss=3.25, reached=(0.5, 0.25))


def trained(num_steps, seed=0):
    trainer = make_head(seed)
    optimiser = make_optimiser(trainer, torch.device("cpu"))
    for number in range(num_steps):
        step(trainer, optimiser, number)
    return trainer, optimiser


def step(trainer, optimiser, number):
    trainer.loss(make_features((9, 7), seed=number)).loss.backward()
    for group in optimiser.param_groups:
        group["lr"] = 0.01
    optimiser.step()
    optimiser.zero_grad()


def test_training_goes_on_as_if_it_had_not_stopped(tmp_path):
    file = tmp_path / "c.safetensors"
    straight, optimiser = trained(2)
    save_checkpoint(file, "run", TrainState(step=2, tokens=30, seconds=1.5, rows=[ROW]), straight.module, optimiser)
    other, other_optimiser = trained(0, seed=9)
    state = load_checkpoint(file, "run", other.module, other_optimiser)
    assert state == TrainState(step=2, tokens=30, seconds=1.5, rows=[ROW])
    for number in (2, 3):
        step(straight, optimiser, number)
        step(other, other_optimiser, number)
    for one, two in zip(straight.module.parameters(), other.module.parameters(), strict=True):
        assert torch.equal(one, two)


def test_without_the_moments_it_would_not(tmp_path):
    straight, optimiser = trained(2)
    other, other_optimiser = trained(0)
    other.module.load_state_dict(straight.module.state_dict())
    step(straight, optimiser, 2)
    step(other, other_optimiser, 2)
    assert not torch.equal(straight.module.fc.weight, other.module.fc.weight)


def test_without_a_file_a_run_is_new(tmp_path):
    trainer, optimiser = trained(0)
    assert load_checkpoint(tmp_path / "absent", "run", trainer.module, optimiser) == TrainState()


def test_files_that_are_damaged_or_of_another_run_are_refused(tmp_path):
    file = tmp_path / "c.safetensors"
    trainer, optimiser = trained(1)
    save_checkpoint(file, "run", TrainState(step=1), trainer.module, optimiser)
    with pytest.raises(ConfigError, match="belongs to another run"):
        load_checkpoint(file, "other", trainer.module, optimiser)
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ConfigError, match="not a whole checkpoint"):
        load_checkpoint(file, "run", trainer.module, optimiser)


def test_the_log_is_a_table():
    assert ROW.acceptance_length == 1.75
    assert log_as_csv([ROW]).splitlines() == [
        "step,tokens,seconds,loss,acceptance_length,reached_1,reached_2",
        "2,30,1.5,3.25000,1.7500,0.5000,0.2500",
    ]
