"""What the acceptance figures mean. Pure functions over counts; ratios of sums, never means of per-request ratios.

All figures come from one table: `num_accepted_counts[a]` = verify steps that accepted exactly a drafts. A prompt's
last chunk verifies nothing and is not a verify step; padding entries are not either.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise


def count_accepted(num_accepted: Iterable[int], draft_len: int) -> tuple[int, ...]:
    """Return how many verify steps accepted 0, 1, .. draft_len drafts.

    Args:
        num_accepted: accepted drafts of each verify step, 0 .. draft_len.
        draft_len: K.
    """
    counts = [0] * (draft_len + 1)
    for accepted in num_accepted:
        counts[accepted] += 1
    return tuple(counts)


def draft_acceptance(num_accepted: int, num_draft_tokens: int) -> float:
    """Return the share of proposed drafts that were accepted; 0 when nothing was proposed.

    Args:
        num_accepted: accepted drafts, summed.
        num_draft_tokens: proposals, summed; placeholders without a token do not count.
    """
    return num_accepted / num_draft_tokens if num_draft_tokens else 0.0


def acceptance_rates(counts: Sequence[int]) -> tuple[float, ...]:
    """Return per draft position i = 1 .. K the share of all verify steps that accepted draft i (unconditional).

    1 + their sum is the acceptance length of runs that nothing cut (see `harness.stats` for the one of a measurement).

    Args:
        counts: see `count_accepted`.
    """
    steps = sum(counts)
    return tuple(sum(counts[i:]) / steps if steps else 0.0 for i in range(1, len(counts)))


def conditional_acceptance_rates(counts: Sequence[int]) -> tuple[float, ...]:
    """Return per draft position the share of steps that accepted it among those that accepted all drafts before it.

    Args:
        counts: see `count_accepted`.

    Returns:
        One rate per position; 0 where no step got that far.
    """
    reached = [sum(counts[i:]) for i in range(len(counts))]
    return tuple(now / before if before else 0.0 for before, now in pairwise(reached))
