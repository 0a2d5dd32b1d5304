"""Definition of the mask."""

from __future__ import annotations

import torch
from torch import Tensor


def mask_logits(logits: Tensor, allowed: Tensor) -> Tensor:
    """See the contract."""
    places = torch.arange(32, dtype=torch.int32, device=logits.device)
    # The shift is arithmetic: the sign fills the upper bits, which the last operation drops.
    bits = (allowed[..., None] >> places) & 1
    is_allowed = bits.flatten(-2)[..., : logits.shape[-1]] > 0
    # Added, not filled in: NaN must not be hidden behind -inf.
    return logits + torch.where(is_allowed, 0.0, -torch.inf)
