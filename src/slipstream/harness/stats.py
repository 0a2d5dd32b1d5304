"""Order statistics of measured values, and the one definition of acceptance length.

Not here: significance tests. Repetitions are reported as they are, the median in front.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Order statistics of one quantity, in the unit of the values."""

    count: int
    mean: float
    p50: float
    p90: float
    p99: float
    min: float
    max: float


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which `share` of the values lie, linear between neighbours.

    Args:
        values: at least one value, in any order.
        share: 0 to 1.

    Raises:
        ValueError: no values, or a share outside its range.
    """
    if not values or not 0.0 <= share <= 1.0:
        raise ValueError(f"percentile of {len(values)} values at {share}: give values, and a share from 0 to 1")
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def median(values: Sequence[float]) -> float:
    """Return the middle value."""
    return percentile(values, 0.5)


def summarize(values: Iterable[float]) -> Summary | None:
    """Return the order statistics of the values, or None when there are none."""
    known = list(values)
    if not known:
        return None
    return Summary(
        count=len(known),
        mean=math.fsum(known) / len(known),
        p50=median(known),
        p90=percentile(known, 0.9),
        p99=percentile(known, 0.99),
        min=min(known),
        max=max(known),
    )


def acceptance_length(num_verify_steps: int, num_emitted: int) -> float | None:
    """Return mean tokens emitted per verify step.

    A step emits the accepted drafts and one token of the target's own, fewer where a stop or a limit cuts the run.

    Args:
        num_verify_steps: steps that verified a ladder.
        num_emitted: returned tokens that those steps made; tokens made by a prefill are not among them.

    Returns:
        The mean, or None when no ladder was verified (as without a drafter) or a server did not tell.
    """
    return num_emitted / num_verify_steps if num_verify_steps and num_emitted else None


def draft_acceptance_rate(num_draft_tokens: int, num_accepted: int) -> float | None:
    """Return the share of verified drafts that were accepted, or None when there were none."""
    return num_accepted / num_draft_tokens if num_draft_tokens else None
