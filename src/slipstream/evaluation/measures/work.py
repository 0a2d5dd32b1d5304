"""Units of work, for a progress bar: about the time of a scored token. A generated token takes about twice as long."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Meter = Callable[[int], None]
_COST_OF_A_STEP = 2


def answer_cost(prompt: Sequence[int], max_tokens: int) -> int:
    """Return the units of one answer."""
    return len(prompt) + _COST_OF_A_STEP * max_tokens


def answers_cost(prompts: Sequence[Sequence[int]], max_tokens: int) -> int:
    """Return the units of many answers."""
    return sum(answer_cost(prompt, max_tokens) for prompt in prompts)
