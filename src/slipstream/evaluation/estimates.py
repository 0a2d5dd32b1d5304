"""Measured shares and ratios with their uncertainty. Not here: what was measured."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

_Z95 = 1.959963984540054


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """A share of independent trials, with the 95 % interval of its probability.

    Args:
        num_right: successes.
        num_trials: trials; the share of none is 0, and its interval everything.
        share: num_right / num_trials.
        low, high: Wilson's score interval (E. B. Wilson, 1927), which stays within 0 and 1.
    """

    num_right: int
    num_trials: int
    share: float
    low: float
    high: float


class Ratio(msgspec.Struct, frozen=True, kw_only=True):
    """A ratio of two sums over independent groups, and the standard error of it."""

    value: float
    standard_error: float
    num_groups: int


def estimate_share(num_right: int, num_trials: int) -> Share:
    """Return the share with its interval.

    Raises:
        ValueError: more successes than trials, or a negative count.
    """
    if not 0 <= num_right <= num_trials:
        raise ValueError(f"{num_right} of {num_trials}: give 0 to {num_trials} successes")
    if num_trials == 0:
        return Share(num_right=0, num_trials=0, share=0.0, low=0.0, high=1.0)
    share, square = num_right / num_trials, _Z95 * _Z95
    center = (share + square / (2 * num_trials)) / (1 + square / num_trials)
    spread = share * (1 - share) / num_trials + square / (4 * num_trials * num_trials)
    half = _Z95 * math.sqrt(spread) / (1 + square / num_trials)
    # Rounding must not push a bound past the share itself.
    low, high = min(max(center - half, 0.0), share), max(min(center + half, 1.0), share)
    return Share(num_right=num_right, num_trials=num_trials, share=share, low=low, high=high)


def estimate_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Ratio:
    """Return sum / sum, and its standard error from how the groups scatter around it.

    Args:
        numerators: one per group, a text's bits for example.
        denominators: one per group, its bytes for example; their sum is not 0.

    Raises:
        ValueError: lengths differ, or the denominators sum to 0.
    """
    total = math.fsum(denominators)
    if len(numerators) != len(denominators) or not total:
        raise ValueError(f"a ratio of {len(numerators)} numerators and {len(denominators)} denominators of sum {total}")
    value, count = math.fsum(numerators) / total, len(numerators)
    if count < 2:
        return Ratio(value=value, standard_error=math.inf, num_groups=count)
    residuals = math.fsum((top - value * below) ** 2 for top, below in zip(numerators, denominators, strict=True))
    return Ratio(value=value, standard_error=math.sqrt(residuals * count / (count - 1)) / total, num_groups=count)


def describe_share(share: Share) -> str:
    """Return `85 % (80-89)`, or a dash without trials."""
    if not share.num_trials:
        return "-"
    return f"{100 * share.share:.0f} % ({100 * share.low:.0f}-{100 * share.high:.0f})"
