"""Definition of `route`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

if TYPE_CHECKING:
    from jaxtyping import Float, Float32, Int64


def route(
    x: Float[Tensor, "num_tokens hidden_size"],
    router_weight: Float32[Tensor, "num_experts hidden_size"],
    router_bias: Float32[Tensor, "num_experts"],
    positions: Int64[Tensor, "num_tokens"],
    topk_experts: int,
    routed_scaling_factor: float,
) -> tuple[Int64[Tensor, "num_tokens topk_experts"], Float32[Tensor, "num_tokens topk_experts"]]:
    """See the contract."""
    scores = torch.sigmoid(functional.linear(x.float(), router_weight))
    # A stable sort keeps equal scores in ascending expert order; torch.topk promises no order.
    order = torch.sort(scores + router_bias, dim=1, descending=True, stable=True).indices
    expert_ids = order[:, :topk_experts]
    # HAZARD: the weights are the scores WITHOUT the bias.
    weights = scores.gather(1, expert_ids)
    weights = weights / weights.sum(1, keepdim=True) * routed_scaling_factor
    is_padding = (positions < 0).unsqueeze(1)
    return expert_ids.masked_fill(is_padding, -1), weights.masked_fill(is_padding, 0.0)
