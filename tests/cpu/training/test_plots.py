from __future__ import annotations

import importlib

import pytest

from slipstream.base.errors import ConfigError
from slipstream.training import plots
from slipstream.training.checkpoints import LogRow

PNG = b"\x89PNG\r\n"


class Figure:
    """Stands for the library's figure and axes: takes every call, and saves what it was told."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        def take(*arguments, **named):
            self.calls.append((name, arguments))
            if name == "savefig":
                arguments[0].write_bytes(PNG)
            return self

        return take


class Plotting:
    def __init__(self):
        self.figure = Figure()

    def subplots(self, figsize):
        return self.figure, self.figure

    def close(self, figure):
        figure.close()


@pytest.fixture
def drawn(monkeypatch):
    plotting = Plotting()
    monkeypatch.setattr(plots, "load_plotting", lambda: plotting)
    return plotting.figure.calls


def lines(calls):
    return [(list(arguments[0]), list(arguments[1])) for name, arguments in calls if name == "plot"]


def test_loss_and_acceptance_are_drawn_over_steps(tmp_path, drawn):
    rows = [LogRow(step=s, tokens=0, seconds=0, loss=9.0 - s, reached=(0.1 * s,)) for s in (1, 2)]
    plots.plot_loss(tmp_path / "loss.png", rows)
    assert lines(drawn) == [([1, 2], [8.0, 7.0]), ([1, 2], [1.1, 1.2])]
    assert (tmp_path / "loss.png").read_bytes() == PNG
    assert drawn[-1][0] == "close"


def test_every_drafter_is_drawn_by_position(tmp_path, drawn):
    plots.plot_acceptance(tmp_path / "a.png", {"eagle3": (0.9, 0.8), "untrained": (0.1, 0.0)}, "title")
    assert lines(drawn) == [([1, 2], [0.9, 0.8]), ([1, 2], [0.1, 0.0])]
    assert ("set_title", ("title",)) in drawn


def test_a_missing_library_is_named_with_the_remedy(monkeypatch):
    def absent(name):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(ConfigError, match=r"install the extra plots .*or give --no-plots"):
        plots.load_plotting()
