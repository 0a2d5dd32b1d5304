"""Log-probabilities of tokens, as the model alone gives them: before biases, penalties, temperature and filters."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class TopLogprobs:
    """The most likely tokens of every row, best first; ties in order of token id."""

    token_ids: Tensor  # [..., num_top] int64
    logprobs: Tensor  # [..., num_top] float32


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


def top_logprobs(logits: Tensor, num_top: int) -> TopLogprobs:
    """Return the raw log-softmax of the most likely tokens.

    Args:
        logits: [..., vocab_size] float32.
        num_top: how many; at most the vocabulary.

    Numerics: float32, the same arithmetic as `chosen_logprobs`, so a chosen token has the same value here.
    """
    # A stable sort: the order of equals must not depend on how many are asked for.
    values, token_ids = logits.sort(dim=-1, descending=True, stable=True)
    values, token_ids = values[..., :num_top], token_ids[..., :num_top]
    return TopLogprobs(token_ids, values - logits.logsumexp(-1, keepdim=True))
