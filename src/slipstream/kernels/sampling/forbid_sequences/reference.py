"""Definition of forbidden sequences."""

from __future__ import annotations

import torch
from torch import Tensor


def forbid_sequences(
    logits: Tensor,
    sequences: Tensor,
    history: Tensor,
    base_positions: Tensor,
    draft_tokens: Tensor,
    num_prompt_tokens: Tensor,
) -> Tensor:
    """See the contract."""
    query_len, width = logits.shape[1], sequences.shape[2]
    rows = torch.arange(query_len, device=logits.device)[:, None]
    # What stands before the token that row j predicts, oldest first: positions base + j - width + 2 .. base + j.
    offsets = rows + torch.arange(2 - width, 1, device=logits.device)  # [query_len, width - 1], relative to base
    positions = base_positions[:, None, None] + offsets
    text = history.gather(1, positions.clamp(0, history.shape[1] - 1).flatten(1)).view(positions.shape)
    if query_len > 1:
        guessed = draft_tokens[:, (offsets - 1).clamp(min=0)]
        text = torch.where(offsets >= 1, guessed, text)
    is_returned = positions >= num_prompt_tokens[:, None, None]

    wanted = sequences[:, None, :, :-1]  # [num_reqs, 1, num_sequences, width - 1]
    agrees = (wanted < 0) | ((wanted == text[:, :, None]) & is_returned[:, :, None])
    last = sequences[:, None, :, -1].expand(-1, query_len, -1)
    is_hit = agrees.all(-1) & (last >= 0)
    num_hits = torch.zeros(logits.shape, dtype=torch.int64, device=logits.device)
    num_hits.scatter_add_(2, last.clamp(min=0), is_hit.long())
    # Added, not filled in: NaN must not be hidden behind -inf.
    return logits + torch.where(num_hits > 0, -torch.inf, 0.0)
