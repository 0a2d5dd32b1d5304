"""The marks that a model is held against: what the bundled model must show, and what every model must.

Only losslessness is a matter of right and wrong; everything else says how good a model is. Not here: measuring.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from slipstream.evaluation.findings import ALL, TRAINED, AblationResult, Acceptance, Findings, NeedleCell

MIN_ACCEPTANCE = {"word_problems": 3.0, "json": 3.0, "stories": 2.5, "chat": 2.0}
"""Acceptance length that a trained drafter reaches by domain, greedy with three drafts."""
ACCEPTANCE_DRAFTS = 3
MAX_CONTROL_ACCEPTANCE = 1.3
MIN_PROBLEM_SHARE = 0.85
MAX_NEEDLE_GAP = 0.03
NEAR_CHANCE = 0.1
SHORT_TOKENS = 512
_CLEAR = 2.0


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """One mark.

    Args:
        name: what is asked for.
        found: what was measured, in words.
        is_met: whether it is reached.
        is_required: missing it is a fault, not a weakness.
    """

    name: str
    found: str
    is_met: bool
    is_required: bool = False


def judge(findings: Findings) -> tuple[Mark, ...]:
    """Return the marks for which something was measured."""
    return tuple(
        mark for part in (_lossless, _bits, _problems, _needle, _acceptance, _ablations) for mark in part(findings)
    )


def cost_of(result: AblationResult) -> str:
    """Return what an ablation did: `nothing`, `costs`, `gains` or `unclear`."""
    if result.largest_shift == 0:
        return "nothing"
    if abs(result.change.value) <= _CLEAR * result.change.standard_error:
        return "unclear"
    return "costs" if result.change.value > 0 else "gains"


def mean_found(cells: Sequence[NeedleCell], selection: str) -> float | None:
    """Return the share of facts found under a selection over these cells, or None without any."""
    chosen = [cell.found for cell in cells if cell.selection == selection]
    num_trials = sum(share.num_trials for share in chosen)
    return sum(share.num_right for share in chosen) / num_trials if num_trials else None


def _lossless(findings: Findings) -> Iterator[Mark]:
    for row in findings.lossless:
        found = f"{row.num_identical} of {row.num_prompts} identical, {row.num_near_ties} near-ties"
        if row.num_different:
            found += f", {row.num_different} different"
        yield Mark(
            name="greedy answers are the same with and without the drafter",
            found=found,
            is_met=row.is_lossless,
            is_required=True,
        )


def _bits(findings: Findings) -> Iterator[Mark]:
    rows = [row for row in findings.bits if row.ngram_bits_per_byte is not None]
    if rows:
        worse = [
            row.domain
            for row in rows
            if row.ngram_bits_per_byte is not None and row.bits_per_byte.value >= row.ngram_bits_per_byte.value
        ]
        found = f"worse in {', '.join(worse)}" if worse else f"better in all {len(rows)}"
        yield Mark(name="fewer bits than the n-gram model in every domain", found=found, is_met=not worse)


def _problems(findings: Findings) -> Iterator[Mark]:
    for cell in findings.problems:
        if cell.templates == "seen" and cell.num_steps <= 2:
            yield Mark(
                name=f"problems of {cell.num_steps} step{'s' * (cell.num_steps > 1)}, known forms: "
                f"{100 * MIN_PROBLEM_SHARE:.0f} % right",
                found=f"{100 * cell.right.share:.1f} %",
                is_met=cell.right.share >= MIN_PROBLEM_SHARE,
            )


def _needle(findings: Findings) -> Iterator[Mark]:
    learned, full = (mean_found(findings.needle, name) for name in ("learned", "full"))
    if learned is not None and full is not None:
        yield Mark(
            name="needle: learned selection within 3 points of full attention",
            found=f"{100 * learned:.1f} against {100 * full:.1f} %",
            is_met=learned >= full - MAX_NEEDLE_GAP,
        )
    # A fact at the very end lies in the last blocks, which every selection holds.
    far = [cell for cell in findings.needle if cell.num_tokens > SHORT_TOKENS and cell.depth < 1.0]
    for selection in ("random", "local"):
        found = mean_found(far, selection)
        if found is not None:
            chance = sum(cell.chance for cell in far) / len(far)
            yield Mark(
                name=f"needle: {selection} selection near chance beyond {SHORT_TOKENS} tokens",
                found=f"{100 * found:.1f} %, chance {100 * chance:.0f} %",
                is_met=found <= chance + NEAR_CHANCE,
            )


def _acceptance(findings: Findings) -> Iterator[Mark]:
    greedy = [row for row in findings.acceptance if row.temperature == 0]
    trained = {row.domain: row for row in greedy if row.drafter == TRAINED}
    for domain, least in MIN_ACCEPTANCE.items():
        row = trained.get(domain)
        if row is not None and len(row.positions) == ACCEPTANCE_DRAFTS:
            yield Mark(
                name=f"acceptance length, {domain}: {least:.1f}",
                found=f"{row.acceptance_length.value:.2f}",
                is_met=row.acceptance_length.value >= least,
            )
    for row in _controls(greedy):
        yield Mark(
            name=f"acceptance length, {row.drafter} control: at most {MAX_CONTROL_ACCEPTANCE}",
            found=f"{row.acceptance_length.value:.2f}",
            is_met=row.acceptance_length.value <= MAX_CONTROL_ACCEPTANCE,
        )


def _controls(rows: Iterable[Acceptance]) -> Iterator[Acceptance]:
    yield from (row for row in rows if row.drafter != TRAINED and row.domain == ALL)


def _ablations(findings: Findings) -> Iterator[Mark]:
    rows = [row for row in findings.ablations if row.feature != "block selection: full"]
    if rows:
        free = [f"{row.feature} ({cost_of(row)})" for row in rows if cost_of(row) != "costs"]
        found = f"not clear for {', '.join(free)}" if free else f"all {len(rows)} cost"
        yield Mark(name="every feature that is switched off costs bits", found=found, is_met=not free)
