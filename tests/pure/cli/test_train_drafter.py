from __future__ import annotations

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from slipstream.base.errors import ConfigError
from slipstream.cli import train_drafter as module
from slipstream.cli.main import main
from slipstream.cli.train_drafter import TrainingDisplay, read_budget, read_layers, read_numbers, read_threads
from slipstream.training.settings import Budget


def run(*arguments):
    with pytest.raises(SystemExit) as stopped:
        main(["train-drafter", *arguments])
    return stopped.value.code


def test_one_budget_is_taken_and_two_are_refused():
    assert read_budget(None, None, None) == Budget(unit="steps", amount=1000)
    assert read_budget(None, 5000, None) == Budget(unit="tokens", amount=5000)
    assert read_budget(None, None, 0.5) == Budget(unit="minutes", amount=0.5)
    with pytest.raises(ConfigError, match="--steps, --tokens and --max-minutes: give one of them"):
        read_budget(3, None, 0.5)


def test_lists_are_read():
    assert read_numbers("--temperatures", "0, 0.7,1") == (0.0, 0.7, 1.0)
    assert read_layers("1,3") == (1, 3)
    assert read_layers("") == ()
    assert (read_threads("4"), read_threads("auto")) == (4, "auto")
    with pytest.raises(ConfigError, match="--temperatures hot: give numbers"):
        read_numbers("--temperatures", "hot")
    with pytest.raises(ConfigError, match=r"--taps 1\.5: give layers"):
        read_layers("1.5")


def test_a_drafter_that_is_not_trained_is_refused_whatever_else_is_missing(capsys):
    assert run("dspark") == 2
    assert capsys.readouterr().err.startswith("slipstream: train-drafter dspark: block drafting is not part of this")
    assert run("eagle") == 2
    assert "no such drafter; allowed: eagle3" in capsys.readouterr().err


def test_what_must_be_given_is_named(capsys):
    assert run("eagle3", "--prompts", "p") == 2
    assert "--out" in capsys.readouterr().err


def report(done, stage="training", total=100):
    return SimpleNamespace(stage=stage, done=done, total=total, detail=f"loss {done}")


def test_without_a_terminal_a_line_comes_now_and_then(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    shown = io.StringIO()
    with TrainingDisplay(Console(file=shown)) as display:
        for done, now in ((0, 0.0), (1, 3.0), (2, 9.9), (3, 10.0), (4, 12.0), (100, 12.5)):
            clock[0] = now
            display(report(done))
        display(report(0, "measuring"))
    lines = shown.getvalue().splitlines()
    assert lines == [
        "training 0%: loss 0",
        "training 3%: loss 3, 323 s left",
        "training 100%: loss 100",
        "measuring 0%: loss 0",
    ]


def test_on_a_terminal_there_is_a_bar_per_stage():
    shown = io.StringIO()
    with TrainingDisplay(Console(file=shown, force_terminal=True, width=100)) as display:
        display(report(50))
        display(report(100))
        display(report(1, "measuring"))
    text = shown.getvalue()
    assert "loss 100" in text
    assert "measuring" in text
    assert "100%" in text
