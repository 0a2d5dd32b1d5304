"""Log-probabilities of tokens, as the model alone gives them: before biases, penalties, temperature and filters."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_MAGNITUDE = 0x7FFFFFFF
_ID_BITS = 31


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
    vocab_size = logits.shape[-1]
    # One integer per token, score before id, so that the order of equals does not depend on how many are asked for.
    # Adding 0 makes -0 the 0 that it equals; the bits of negative numbers fall as the numbers rise.
    bits = (logits + 0.0).view(torch.int32).to(torch.int64)
    ranks = torch.where(bits >= 0, bits, -(bits & _MAGNITUDE)) << _ID_BITS
    ranks |= torch.arange(vocab_size - 1, -1, -1, device=logits.device)
    token_ids = ranks.topk(min(num_top, vocab_size), dim=-1).indices
    return TopLogprobs(token_ids, logits.gather(-1, token_ids) - logits.logsumexp(-1, keepdim=True))
