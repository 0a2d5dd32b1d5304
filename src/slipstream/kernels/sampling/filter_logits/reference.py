"""Definition of the filters by one stable sort per row."""

from __future__ import annotations

import torch
from torch import Tensor

from slipstream.kernels.sampling.exact_math import fixed_point, relative_weight

MASS_BITS = 40


def filter_logits(logits: Tensor, temperature: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor) -> Tensor:
    """See the contract."""
    top = logits.amax(-1, keepdim=True)
    is_filtered = torch.isfinite(top) & (temperature > 0)[:, None]
    # Relative to the row's maximum: a tiny temperature then cannot overflow the most likely token.
    scale = torch.where(temperature > 0, temperature, 1.0)[:, None]
    scaled = torch.where(is_filtered, (logits - top) / scale, 0.0)
    above_min_p = relative_weight(scaled) >= min_p.double()[:, None]

    # Stable and descending: equal scores stay in order of token id, so a rank is a total order.
    ordered, order = scaled.masked_fill(~above_min_p, -torch.inf).sort(stable=True, dim=-1, descending=True)
    rank = torch.arange(logits.shape[1], device=logits.device)[None, :]
    limit = torch.where(top_k > 0, top_k.long(), logits.shape[1])[:, None]
    keeps_rank = rank < limit

    mass = fixed_point(relative_weight(ordered), MASS_BITS) * keeps_rank
    mass_before = mass.cumsum(-1) - mass
    allowance = top_p.double()[:, None] * mass.sum(-1, keepdim=True).double()
    keeps_rank &= (mass_before.double() < allowance) | (top_p >= 1.0)[:, None] | (rank == 0)

    keeps = torch.zeros_like(keeps_rank).scatter(-1, order, keeps_rank) & above_min_p
    return torch.where(keeps | ~is_filtered, logits, -torch.inf)
