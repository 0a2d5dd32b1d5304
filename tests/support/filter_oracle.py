"""The filters of one row, one token at a time: what the vectorised ones must equal."""

from __future__ import annotations

import math

LARGEST = 3.4028235e38  # of float32, in which the temperature scales


def kept_tokens(logits: list[float], temperature: float, top_k: int, top_p: float, min_p: float) -> list[int]:
    """Return the ids that survive, ascending.

    Args:
        logits: of one row; -inf = already excluded.
        temperature: 0 = greedy: nothing is removed.
        top_k, top_p, min_p: 0, 1 and 0 are off.
    """
    finite = [token for token, value in enumerate(logits) if value > -math.inf]
    if temperature == 0:
        return finite
    top = max(logits)
    score = {token: (logits[token] - top) / temperature for token in finite}
    score = {token: value if value >= -LARGEST else -math.inf for token, value in score.items()}
    alive = [token for token in finite if math.exp(score[token]) >= min_p]
    alive.sort(key=lambda token: (-score[token], token))
    if top_k > 0:
        alive = alive[:top_k]
    if top_p < 1:
        total = math.fsum(math.exp(score[token]) for token in alive)
        kept, mass = [], 0.0
        for token in alive:
            if kept and mass >= top_p * total:
                break
            kept.append(token)
            mass += math.exp(score[token])
        alive = kept
    return sorted(alive)
