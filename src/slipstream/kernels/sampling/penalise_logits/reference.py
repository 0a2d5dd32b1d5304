"""Definition of the penalties."""

from __future__ import annotations

import torch
from torch import Tensor


def penalise_logits(
    logits: Tensor,
    history: Tensor,
    base_positions: Tensor,
    draft_tokens: Tensor,
    num_prompt_tokens: Tensor,
    repetition: Tensor,
    presence: Tensor,
    frequency: Tensor,
) -> Tensor:
    """See the contract."""
    num_reqs, query_len, vocab_size = logits.shape
    positions = torch.arange(history.shape[1], device=logits.device)
    is_known = positions <= base_positions[:, None]
    is_prompt = positions < num_prompt_tokens[:, None]
    tokens = history.clamp(0, vocab_size - 1)

    def count(is_counted: Tensor) -> Tensor:
        counts = torch.zeros((num_reqs, vocab_size), dtype=torch.int64, device=logits.device)
        return counts.scatter_add_(1, tokens, is_counted.long())

    in_prompt = count(is_known & is_prompt) > 0
    num_guessed = torch.zeros(logits.shape, dtype=torch.int64, device=logits.device)
    if query_len > 1:
        # Draft j is part of the text of rows j and later.
        proposals = draft_tokens[..., None]
        num_guessed[:, 1:].scatter_(2, proposals.clamp(min=0), (proposals >= 0).long())
        num_guessed = num_guessed.cumsum(1)
    num_returned = count(is_known & ~is_prompt)[:, None] + num_guessed

    is_seen = in_prompt[:, None] | (num_returned > 0)
    factor = torch.where(is_seen, repetition[:, None, None], 1.0)
    scaled = torch.where(logits > 0, logits / factor, logits * factor)
    scaled = scaled - frequency[:, None, None] * num_returned
    return scaled - presence[:, None, None] * (num_returned > 0)
