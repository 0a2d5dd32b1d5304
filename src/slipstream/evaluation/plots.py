"""Findings as PNG files, with matplotlib, an optional package. Not here: tables (report)."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from slipstream.base.errors import ConfigError
from slipstream.evaluation.estimates import Ratio, Share
from slipstream.evaluation.findings import (
    TRAINED,
    AblationResult,
    Acceptance,
    DomainBits,
    Findings,
    NeedleCell,
    ProblemCell,
)

_DPI = 120


def require_plots() -> None:
    """Check that drawing is possible.

    Raises:
        ConfigError: matplotlib is not installed, or cannot be loaded.
    """
    try:
        importlib.import_module("matplotlib.figure")
    except ImportError:
        raise ConfigError("--plots needs matplotlib: install it with pip install matplotlib, or leave it out") from None


def draw_plots(findings: Findings, folder: Path) -> list[Path]:
    """Write a picture of everything that was measured; the title says so when the run was cut off.

    Args:
        findings: what a run found.
        folder: created; pictures of the same names are overwritten.

    Returns:
        The files.
    """
    require_plots()
    folder.mkdir(parents=True, exist_ok=True)
    greedy = [row for row in findings.acceptance if row.drafter == TRAINED and row.temperature == 0]
    pictures: dict[str, tuple[Sequence[Any], Callable[[Sequence[Any], Any], None]]] = {
        "bits": (findings.bits, _draw_bits),
        "problems": (findings.problems, _draw_problems),
        "needle": (findings.needle, _draw_needle),
        "acceptance": (findings.acceptance, _draw_acceptance),
        "positions": (greedy, _draw_positions),
        "ablations": (findings.ablations, _draw_ablations),
    }
    written: list[Path] = []
    for name, (rows, draw) in pictures.items():
        if not rows:
            continue
        figure = _new_figure()
        draw(rows, figure)
        if findings.is_partial:
            figure.suptitle("partial: the run was interrupted", color="firebrick", fontsize=9)
        path = folder / f"{name}.png"
        figure.savefig(path, dpi=_DPI)
        written.append(path)
    return written


def _new_figure() -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(8, 4.5), layout="constrained")


def _draw_bits(rows: Sequence[DomainBits], figure: Any) -> None:
    axes = figure.add_subplot()
    _bars(axes, [row.domain for row in rows], "model", [_with_error(row.bits_per_byte) for row in rows], 0, 2)
    rivals = [row.ngram_bits_per_byte for row in rows]
    pairs = [(math.nan, 0.0) if ratio is None else _with_error(ratio) for ratio in rivals]
    _bars(axes, [row.domain for row in rows], "n-gram, order 5", pairs, 1, 2)
    axes.set_ylabel("bits per byte")
    axes.legend()


def _draw_problems(rows: Sequence[ProblemCell], figure: Any) -> None:
    axes = figure.add_subplot()
    steps = sorted({row.num_steps for row in rows})
    kinds = list(dict.fromkeys(row.templates for row in rows))
    for place, kind in enumerate(kinds):
        found = {row.num_steps: row.right for row in rows if row.templates == kind}
        shares = [found.get(step) for step in steps]
        _share_bars(axes, [f"{step} steps" for step in steps], f"{kind} forms", shares, place, len(kinds))
    axes.set_ylabel("right answers, %")
    axes.set_ylim(0, 105)
    axes.legend()


def _draw_needle(cells: Sequence[NeedleCell], figure: Any) -> None:
    selections = list(dict.fromkeys(cell.selection for cell in cells))
    lengths, depths = sorted({cell.num_tokens for cell in cells}), sorted({cell.depth for cell in cells})
    for place, selection in enumerate(selections):
        axes = figure.add_subplot(1, len(selections), place + 1)
        shares = {(cell.num_tokens, cell.depth): cell.found.share for cell in cells if cell.selection == selection}
        grid = [[100 * shares.get((length, depth), math.nan) for length in lengths] for depth in depths]
        axes.imshow(grid, vmin=0, vmax=100, cmap="RdYlGn", aspect="auto")
        for row, line in enumerate(grid):
            for column, value in enumerate(line):
                axes.text(column, row, "" if math.isnan(value) else f"{value:.0f}", ha="center", va="center")
        axes.set_title(selection)
        axes.set_xticks(range(len(lengths)), [str(length) for length in lengths])
        axes.set_yticks(range(len(depths)), [f"{100 * depth:.0f} %" for depth in depths])
        axes.set_xlabel("tokens")


def _draw_acceptance(rows: Sequence[Acceptance], figure: Any) -> None:
    axes = figure.add_subplot()
    series = list(dict.fromkeys((row.drafter, row.temperature) for row in rows))
    domains = list(dict.fromkeys(row.domain for row in rows))
    for place, (drafter, temperature) in enumerate(series):
        found = {
            row.domain: _with_error(row.acceptance_length)
            for row in rows
            if (row.drafter, row.temperature) == (drafter, temperature)
        }
        pairs = [found.get(domain, (math.nan, 0.0)) for domain in domains]
        _bars(axes, domains, f"{drafter}, temperature {temperature:g}", pairs, place, len(series))
    axes.axhline(1.0, color="gray", linewidth=0.8)
    axes.set_ylabel("tokens per verify step")
    axes.legend(fontsize=7)


def _draw_positions(rows: Sequence[Acceptance], figure: Any) -> None:
    axes = figure.add_subplot()
    for row in rows:
        places = range(1, len(row.positions) + 1)
        axes.plot(places, [100 * share.share for share in row.positions], marker="o", label=row.domain)
        axes.set_xticks(places)
    axes.set_xlabel("draft position")
    axes.set_ylabel("verify steps that accepted it, %")
    axes.set_ylim(0, 105)
    axes.legend(fontsize=7)


def _draw_ablations(rows: Sequence[AblationResult], figure: Any) -> None:
    axes = figure.add_subplot()
    pairs = [_with_error(row.change) for row in rows]
    axes.barh(range(len(rows)), [value for value, _ in pairs], xerr=[error for _, error in pairs])
    axes.set_yticks(range(len(rows)), [row.feature for row in rows])
    axes.invert_yaxis()
    axes.axvline(0.0, color="black", linewidth=0.8)
    # One of them may cost a hundred times as much as another.
    axes.set_xscale("symlog", linthresh=0.01)
    axes.set_xlabel("bits per byte more without it")


def _bars(
    axes: Any, names: Sequence[str], label: str, pairs: Sequence[tuple[float, float]], place: int, count: int
) -> None:
    width = 0.8 / count
    middles = [index + (place - (count - 1) / 2) * width for index in range(len(names))]
    axes.bar(middles, [value for value, _ in pairs], width, yerr=[error for _, error in pairs], label=label)
    axes.set_xticks(range(len(names)), names, rotation=30, ha="right")


def _share_bars(
    axes: Any, names: Sequence[str], label: str, shares: Sequence[Share | None], place: int, count: int
) -> None:
    width = 0.8 / count
    middles = [index + (place - (count - 1) / 2) * width for index in range(len(names))]
    known = [(middle, share) for middle, share in zip(middles, shares, strict=True) if share is not None]
    errors = [
        [100 * (share.share - share.low) for _, share in known],
        [100 * (share.high - share.share) for _, share in known],
    ]
    axes.bar([middle for middle, _ in known], [100 * s.share for _, s in known], width, yerr=errors, label=label)
    axes.set_xticks(range(len(names)), names)


def _with_error(ratio: Ratio) -> tuple[float, float]:
    return ratio.value, ratio.standard_error if math.isfinite(ratio.standard_error) else 0.0
