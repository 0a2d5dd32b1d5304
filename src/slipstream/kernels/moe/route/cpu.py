"""Routing on the host, for few tokens: sorting short lists costs less than a chain of small tensor calls.

Prompt chunks go through the reference. Scores are the same in both; the weights are divided in float64 here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from slipstream.kernels.moe.route import reference

if TYPE_CHECKING:
    from jaxtyping import Float, Float32, Int64

MAX_HOST_SCORES = 1024
"""Scores that are sorted on the host; with more, the reference's tensor calls are faster."""


def route(
    x: Float[Tensor, "num_tokens hidden_size"],
    router_weight: Float32[Tensor, "num_experts hidden_size"],
    router_bias: Float32[Tensor, "num_experts"],
    positions: Int64[Tensor, "num_tokens"],
    topk_experts: int,
    routed_scaling_factor: float,
) -> tuple[Int64[Tensor, "num_tokens topk_experts"], Float32[Tensor, "num_tokens topk_experts"]]:
    """See the contract."""
    num_experts = router_weight.shape[0]
    if not 0 < x.shape[0] * num_experts <= MAX_HOST_SCORES:
        return reference.route(x, router_weight, router_bias, positions, topk_experts, routed_scaling_factor)
    scores = torch.sigmoid(functional.linear(x.float(), router_weight))
    biased = scores + router_bias
    ids: list[list[int]] = []
    weights: list[list[float]] = []
    for row, keys, position in zip(scores.tolist(), biased.tolist(), positions.tolist(), strict=True):
        if position < 0:
            ids.append([-1] * topk_experts)
            weights.append([0.0] * topk_experts)
            continue
        # A reversed sort is stable too: of equal scores the lower expert comes first.
        chosen = sorted(range(num_experts), key=keys.__getitem__, reverse=True)[:topk_experts]
        # HAZARD: the weights are the scores WITHOUT the bias.
        share = [row[expert] for expert in chosen]
        total = sum(share)
        ids.append(chosen)
        weights.append([score / total * routed_scaling_factor for score in share])
    return torch.tensor(ids, device=x.device), torch.tensor(weights, dtype=torch.float32, device=x.device)
