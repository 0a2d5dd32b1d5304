"""Pictures of what was measured, and a refusal where they cannot be drawn."""

from __future__ import annotations

import sys

import pytest

from slipstream.base.errors import ConfigError
from slipstream.evaluation.findings import Findings
from slipstream.evaluation.plots import draw_plots, require_plots
from support.evaluation_world import good_findings

NAMES = ["bits", "problems", "needle", "acceptance", "positions", "ablations"]


def test_everything_measured_has_a_picture(tmp_path):
    files = draw_plots(good_findings(), tmp_path / "new")
    assert [file.stem for file in files] == NAMES
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in files)


def test_what_was_not_measured_has_none(tmp_path):
    assert draw_plots(Findings(), tmp_path) == []
    findings = good_findings()
    findings.is_partial = True
    assert [file.stem for file in draw_plots(Findings(bits=findings.bits, is_partial=True), tmp_path)] == ["bits"]


def test_without_matplotlib_plots_are_refused_with_the_remedy(monkeypatch, tmp_path):
    require_plots()
    # None in the table of modules makes its import fail, as a package that is absent or broken does.
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigError, match="--plots needs matplotlib: install it with pip install matplotlib"):
        draw_plots(good_findings(), tmp_path)
