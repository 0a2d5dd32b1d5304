"""Log-probabilities of chosen tokens, as the model alone gives them."""

from __future__ import annotations

from torch import Tensor


def chosen_logprobs(logits: Tensor, tokens: Tensor) -> Tensor:
    """Return the raw log-softmax of each chosen token: before temperature and filters.

    Args:
        logits: [..., vocab_size] float32.
        tokens: [...] int64; 0 <= token < vocab_size.

    Returns:
        [...] float32.

    Numerics: float32; a row that holds NaN gives NaN for itself only.
    """
    chosen = logits.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
    return chosen - logits.logsumexp(-1)
