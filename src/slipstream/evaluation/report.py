"""Findings as tables for people and as plain data for files. Not here: drawings (plots), provenance (the caller's)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from slipstream.evaluation.estimates import Ratio, describe_share
from slipstream.evaluation.findings import ALL, TRAINED, Findings
from slipstream.evaluation.verdict import cost_of, judge

PARTIAL = "PARTIAL: the run was interrupted; what follows is what it had found by then"


def build_tables(findings: Findings) -> list[Table]:
    """Return the tables of what was measured, the marks last."""
    makers = (_bits, _problems, _needle, _acceptance, _lossless, _ablations, _marks)
    return [table for maker in makers if (table := maker(findings)).row_count]


def as_parts(findings: Findings) -> dict[str, Any]:
    """Return the findings as named parts of a result file; what was not measured is left out."""
    parts: dict[str, Any] = {"is_partial": findings.is_partial}
    if findings.is_partial:
        parts["unfinished"] = list(findings.unfinished)
    lists = ("notes", "bits", "problems", "needle", "acceptance", "lossless", "ablations")
    parts |= {name: list(getattr(findings, name)) for name in lists if getattr(findings, name)}
    parts["marks"] = list(judge(findings))
    return parts


def _bits(findings: Findings) -> Table:
    table = _table("Bits per byte", "domain", "texts", "KB", "model", "n-gram, order 5", "saved")
    for row in findings.bits:
        rival, saved = row.ngram_bits_per_byte, "-"
        if rival is not None and rival.value:
            saved = f"{100 * (1 - row.bits_per_byte.value / rival.value):.0f} %"
        cells = (row.num_texts, f"{row.num_bytes / 1000:.1f}", _ratio(row.bits_per_byte, 3), _ratio(rival, 3), saved)
        table.add_row(row.domain, *map(str, cells))
    return table


def _problems(findings: Findings) -> Table:
    table = _table("Word problems, greedy, last number exact", "forms", "steps", "problems", "right (95 %)")
    for row in findings.problems:
        table.add_row(row.templates, str(row.num_steps), str(row.right.num_trials), describe_share(row.right))
    return table


def _needle(findings: Findings) -> Table:
    depths = sorted({cell.depth for cell in findings.needle})
    columns = [f"depth {100 * depth:.0f} %" for depth in depths]
    table = _table("Needle: facts found (95 %)", "selection", "tokens", *columns)
    rows = dict.fromkeys((cell.selection, cell.num_tokens) for cell in findings.needle)
    for selection, num_tokens in rows:
        found = {
            cell.depth: describe_share(cell.found)
            for cell in findings.needle
            if (cell.selection, cell.num_tokens) == (selection, num_tokens)
        }
        table.add_row(selection, str(num_tokens), *(found.get(depth, "-") for depth in depths))
    return table


def _acceptance(findings: Findings) -> Table:
    most = max((len(row.positions) for row in findings.acceptance), default=0)
    columns = [f"draft {place + 1}" for place in range(most)]
    table = _table("Acceptance", "drafter", "temp.", "domain", "steps", "length", *columns)
    for row in findings.acceptance:
        if row.drafter != TRAINED and row.domain != ALL:
            # Controls fail everywhere alike; their domains are in the result file.
            continue
        shares = [f"{100 * share.share:.0f} %" for share in row.positions]
        cells = (f"{row.temperature:g}", row.domain, str(row.num_verify_steps), _ratio(row.acceptance_length, 2))
        table.add_row(row.drafter, *cells, *shares)
    return table


def _lossless(findings: Findings) -> Table:
    table = _table("Greedy answers with and without the drafter", "prompts", "identical", "near-ties", "different")
    for row in findings.lossless:
        counts = (row.num_prompts, row.num_identical, row.num_near_ties, row.num_different)
        table.add_row(*map(str, counts))
        if row.first_different is not None:
            table.caption = f"first difference behind: {row.first_different!r}"
    return table


def _ablations(findings: Findings) -> Table:
    columns = ("switched off", "how", "bits per byte", "change", "worst domain", "it", "largest shift, nats")
    table = _table("Ablations", *columns)
    words = {"nothing": "CHANGED NOTHING", "unclear": "not clear", "costs": "costs", "gains": "gains"}
    for row in findings.ablations:
        table.add_row(
            row.feature,
            row.means,
            f"{row.bits_per_byte:.3f}",
            _ratio(row.change, 4, sign="+"),
            f"{row.worst_domain} {row.worst_change:+.3f}",
            words[cost_of(row)],
            f"{row.largest_shift:.2g}",
        )
    return table


def _marks(findings: Findings) -> Table:
    table = _table("Marks of the bundled model", "", "mark", "found")
    for mark in judge(findings):
        word = "ok" if mark.is_met else ("FAIL" if mark.is_required else "missed")
        table.add_row(word, mark.name, mark.found)
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", caption_justify="left")
    for place, column in enumerate(columns):
        is_words = place == 0 or column in ("how", "it", "mark", "found", "domain", "worst domain")
        table.add_column(column, justify="left" if is_words else "right")
    return table


def _ratio(ratio: Ratio | None, digits: int, *, sign: str = "") -> str:
    if ratio is None:
        return "-"
    if not math.isfinite(ratio.standard_error):
        return f"{ratio.value:{sign}.{digits}f}"
    return f"{ratio.value:{sign}.{digits}f} ± {ratio.standard_error:.{digits}f}"


def title_of(name: str, drafter: str, notes: Sequence[str]) -> str:
    """Return the lines above the tables."""
    return "\n".join([f"{name}, drafter {drafter}", *(f"note: {note}" for note in notes)])
