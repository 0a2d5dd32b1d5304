"""What penalties, biases and forbidden sequences do to one row of logits, one token at a time, in double precision."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence


def penalised(
    logits: Sequence[float],
    prompt: Sequence[int],
    returned: Sequence[int],
    repetition: float,
    presence: float,
    frequency: float,
) -> list[float]:
    """Return the logits after the penalties, in vLLM's order."""
    counts = Counter(returned)
    seen = {*prompt, *returned}
    result = list(logits)
    for token, value in enumerate(result):
        if token in seen:
            value = value / repetition if value > 0 else value * repetition
        value -= frequency * counts[token]
        value -= presence * (counts[token] > 0)
        result[token] = value
    return result


def forbidden_by_sequences(returned: Sequence[int], sequences: Sequence[Sequence[int]]) -> set[int]:
    """Return the tokens that would complete a sequence whose rest ends the returned tokens."""
    hits = set()
    for sequence in sequences:
        rest = list(sequence[:-1])
        if not rest or list(returned[-len(rest) :]) == rest:
            hits.add(sequence[-1])
    return hits


def edited(
    logits: Sequence[float],
    prompt: Sequence[int],
    returned: Sequence[int],
    *,
    repetition_penalty: float = 1.0,
    presence_penalty: float = 0.0,
    frequency_penalty: float = 0.0,
    logit_bias: Mapping[int, float] | None = None,
    allowed_token_ids: Sequence[int] | None = None,
    sequences: Sequence[Sequence[int]] = (),
    min_tokens: int = 0,
    end_tokens: Sequence[int] = (),
) -> list[float]:
    """Return one row's logits after everything that a request can ask for."""
    banned = forbidden_by_sequences(returned, sequences)
    if allowed_token_ids is not None:
        banned |= set(range(len(logits))) - set(allowed_token_ids)
    if len(returned) < min_tokens:
        banned |= set(end_tokens)
    biased = [value + (logit_bias or {}).get(token, 0.0) for token, value in enumerate(logits)]
    result = penalised(biased, prompt, returned, repetition_penalty, presence_penalty, frequency_penalty)
    return [-math.inf if token in banned else value for token, value in enumerate(result)]
