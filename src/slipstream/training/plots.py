"""Pictures of a run: loss over steps, and drafts by position. Needs matplotlib, the extra `plots`."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from slipstream.base.errors import ConfigError
from slipstream.training.checkpoints import LogRow
from slipstream.training.run_folder import write_whole

_SIZE_INCHES = (7.0, 4.0)
_DPI = 120


def load_plotting() -> Any:
    """Return the drawing library, set to files only.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        matplotlib: Any = importlib.import_module("matplotlib")
        matplotlib.use("agg", force=True)
        return importlib.import_module("matplotlib.pyplot")
    except ImportError:
        raise ConfigError(
            "plots need matplotlib, which is not installed: install the extra plots (pip install matplotlib), "
            "or give --no-plots"
        ) from None


def plot_loss(path: Path, rows: Sequence[LogRow]) -> None:
    """Draw loss and estimated acceptance length over steps.

    Args:
        path: of the PNG.
        rows: at least one.
    """
    plotting = load_plotting()
    figure, left = plotting.subplots(figsize=_SIZE_INCHES)
    steps = [row.step for row in rows]
    left.plot(steps, [row.loss for row in rows], color="tab:blue", label="loss")
    left.set_xlabel("optimiser step")
    left.set_ylabel("loss, unrolled steps weighted", color="tab:blue")
    right = left.twinx()
    right.plot(steps, [row.acceptance_length for row in rows], color="tab:orange", label="acceptance length")
    right.set_ylabel("estimated acceptance length, greedy", color="tab:orange")
    left.grid(alpha=0.3)
    _save(plotting, figure, path)


def plot_acceptance(path: Path, rates: Mapping[str, Sequence[float]], title: str) -> None:
    """Draw the acceptance rate of each draft position, one line per drafter.

    Args:
        path: of the PNG.
        rates: drafter -> one rate per position.
        title: what was measured.
    """
    plotting = load_plotting()
    figure, axes = plotting.subplots(figsize=_SIZE_INCHES)
    for name, values in rates.items():
        axes.plot(range(1, len(values) + 1), values, marker="o", label=name)
    axes.set_xlabel("draft position")
    axes.set_ylabel("acceptance rate")
    axes.set_ylim(0, 1)
    axes.set_xticks(range(1, 1 + max(map(len, rates.values()))))
    axes.set_title(title)
    axes.grid(alpha=0.3)
    axes.legend()
    _save(plotting, figure, path)


def _save(plotting: Any, figure: Any, path: Path) -> None:
    figure.tight_layout()
    write_whole(path, lambda partial: figure.savefig(partial, dpi=_DPI, format="png"))
    plotting.close(figure)
