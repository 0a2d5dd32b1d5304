"""Counters since the engine started; speculation is counted over tokens that were returned."""

from __future__ import annotations

from dataclasses import dataclass, field


def _new_counts() -> list[int]:
    return []


@dataclass(slots=True)
class Tally:
    """The counters of EngineStats that the scheduler owns; the meanings are given there.

    Args:
        num_accepted_per_position: [draft_len] ladders whose draft i was accepted and returned.
    """

    num_prefix_query_tokens: int = 0
    num_prefix_hit_tokens: int = 0
    num_prompt_tokens: int = 0
    num_generated_tokens: int = 0
    num_preemptions: int = 0
    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    num_steps: int = 0
    num_step_tokens: int = 0
    num_corrupted_requests: int = 0
    num_cached_prompt_tokens: int = 0
    num_accepted_per_position: list[int] = field(default_factory=_new_counts)

    def count_ladder(self, num_draft_tokens: int, num_accepted: int) -> None:
        """Count one verified ladder; one without any draft proposed is plain decoding and is not counted."""
        if not num_draft_tokens:
            return
        self.num_drafts += 1
        self.num_draft_tokens += num_draft_tokens
        self.num_accepted_tokens += num_accepted
        for position in range(num_accepted):
            self.num_accepted_per_position[position] += 1
