"""Definition of a draw (the Gumbel-max form of sampling)."""

from __future__ import annotations

import torch
from torch import Tensor

from slipstream.kernels.sampling.gumbel_noise.reference import gumbel_noise


def draw_tokens(
    logits: Tensor,
    temperature: Tensor,
    seed: Tensor,
    position: Tensor,
    token_ids: Tensor | None,
    has_noise: bool,
) -> Tensor:
    """See the contract."""
    scores = logits
    if has_noise:
        top = logits.amax(-1, keepdim=True)
        # amax hands NaN and +inf on, so one value tells whether the row can be drawn from.
        scores = torch.where(torch.isfinite(top), logits - top, 0.0)
        ids = torch.arange(logits.shape[1], device=logits.device) if token_ids is None else token_ids
        is_drawn = temperature > 0
        scale = torch.where(is_drawn, temperature, 1.0)
        noisy = scores / scale[:, None] + gumbel_noise(seed, position, ids)
        scores = torch.where(is_drawn[:, None], noisy, scores)
    column = scores.argmax(-1)
    return column if token_ids is None else token_ids[column]
