"""Definition of the biases."""

from __future__ import annotations

import torch
from torch import Tensor


def bias_logits(
    logits: Tensor, bias: Tensor, is_end_token: Tensor, first_end_position: Tensor, base_positions: Tensor
) -> Tensor:
    """See the contract."""
    predicted = base_positions[:, None] + torch.arange(1, logits.shape[1] + 1, device=logits.device)
    is_early = predicted < first_end_position[:, None]
    forbidden = is_early[..., None] & is_end_token[:, None]
    # Added, not filled in: NaN must not be hidden behind -inf.
    return logits + torch.where(forbidden, -torch.inf, bias[:, None])
