"""What one step may hold, and how prompts share it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from slipstream.base.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class SchedulerConfig:
    """The scheduler's section of the engine's configuration.

    Args:
        max_num_seqs: requests that run at once; each owns one row, so this is also max_rows.
        prefill_chunk_tokens: prompt tokens of one step, over all its chunks.
        page_size: tokens per page; equal to the cache's.
        max_model_len: most tokens of a request, prompt and returned ones.
        draft_len: K, the drafts of every ladder; 0 is plain decoding.
        max_steps_in_flight: 1 plans after each commit; 2 plans the next step before the last one is committed.
    """

    max_num_seqs: int
    prefill_chunk_tokens: int
    page_size: int
    max_model_len: int
    draft_len: int = 0
    max_steps_in_flight: int = 1

    def __post_init__(self) -> None:
        least = {"max_model_len": 2, "draft_len": 0}
        for item in fields(self):
            value = getattr(self, item.name)
            if value < least.get(item.name, 1):
                raise ConfigError(f"{item.name}={value}: give an integer of at least {least.get(item.name, 1)}")
        if self.max_steps_in_flight > 2:
            raise ConfigError(
                f"max_steps_in_flight={self.max_steps_in_flight}: give 1 (no overlap) or 2 (overlap); "
                "pages are reserved for at most two steps ahead"
            )

    @property
    def max_rows(self) -> int:
        """Rows of device state."""
        return self.max_num_seqs

    @property
    def query_len(self) -> int:
        """Query rows of one ladder, and the most tokens that a step emits for one request."""
        return self.draft_len + 1


def share_prefill_budget(num_remaining: Sequence[int], budget_tokens: int) -> list[int]:
    """Divide one step's prompt tokens among prompts.

    The oldest prompt gets half of the budget, so that it always moves. The other half goes to the prompt with the
    fewest tokens left, then the next, so that a short prompt does not wait for a long one; prompts of equal length
    are served in order of age, one after the other. Nothing is left over while a prompt could use it.

    Args:
        num_remaining: tokens to compute per prompt, oldest first, each at least 1.
        budget_tokens: tokens to give away.

    Returns:
        Tokens per prompt; the sum is min(budget_tokens, sum(num_remaining)).
    """
    if not num_remaining:
        return []
    grants = [0] * len(num_remaining)
    grants[0] = min(num_remaining[0], budget_tokens - budget_tokens // 2)
    left = budget_tokens - grants[0]
    for number in sorted(range(len(num_remaining)), key=lambda number: (num_remaining[number], number)):
        extra = min(num_remaining[number] - grants[number], left)
        grants[number] += extra
        left -= extra
    return grants
