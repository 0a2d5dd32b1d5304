"""Choose the experts of each token and their weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from slipstream.base.errors import KernelError
from slipstream.kernels.faults import shape_fault
from slipstream.kernels.select import select

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
    """Return the experts with the largest biased score, weighted by their unbiased scores.

    Args:
        x: [num_tokens, hidden_size] float32 or bfloat16.
        router_weight: [num_experts, hidden_size] float32.
        router_bias: [num_experts] float32; moves the choice only; zeros when the checkpoint has none.
        positions: [num_tokens] int64; -1 marks padding, which chooses nobody.
        topk_experts: experts per token.
        routed_scaling_factor: multiplies the weights after they were made to sum to one.

    Returns:
        expert_ids: [num_tokens, topk_experts] int64, by falling biased score; -1 in padding rows.
        expert_weights: [num_tokens, topk_experts] float32; 0 in padding rows.

    Raises:
        ShapeError: an axis or a dtype disagrees.
        KernelError: topk_experts is not within 1 .. num_experts.

    Numerics: float32 product, sigmoid and sum. Equal biased scores: the lower expert id wins.
    Source: config fields scoring_func, use_routing_bias, num_experts_per_tok, routed_scaling_factor.
    """
    num_experts = router_weight.shape[0]
    if x.dim() != 2 or x.shape[1] != router_weight.shape[1]:
        raise shape_fault("route", "x", x, f"[num_tokens, {router_weight.shape[1]}]")
    if router_weight.dtype != torch.float32:
        raise shape_fault("route", "router_weight", router_weight, "[num_experts, hidden_size] float32")
    if router_bias.shape != (num_experts,) or router_bias.dtype != torch.float32:
        raise shape_fault("route", "router_bias", router_bias, f"[{num_experts}] float32")
    if positions.shape != x.shape[:1] or positions.dtype != torch.int64:
        raise shape_fault("route", "positions", positions, f"[{x.shape[0]}] int64")
    if not 1 <= topk_experts <= num_experts:
        raise KernelError(f"route: topk_experts is {topk_experts}, allowed is 1 .. {num_experts} (num_experts)")
    function = select("moe/route", x.device.type).function
    return function(x, router_weight, router_bias, positions, topk_experts, routed_scaling_factor)
