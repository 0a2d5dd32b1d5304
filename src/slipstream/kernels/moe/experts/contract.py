"""Run the routed experts and sum their weighted outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from slipstream.kernels.faults import shape_fault
from slipstream.kernels.select import select

if TYPE_CHECKING:
    from jaxtyping import Float, Float32, Int64


def experts(
    x: Float[Tensor, "num_tokens hidden_size"],
    expert_ids: Int64[Tensor, "num_tokens topk_experts"],
    expert_weights: Float32[Tensor, "num_tokens topk_experts"],
    w13: Float[Tensor, "num_experts twice_intermediate_size hidden_size"],
    w2: Float[Tensor, "num_experts hidden_size intermediate_size"],
    alpha: float,
    limit: float,
) -> Float[Tensor, "num_tokens hidden_size"]:
    """Return the sum over a token's experts of weight * w2 @ swiglu_oai(w13 @ x).

    Args:
        x: [num_tokens, hidden_size] float32 or bfloat16.
        expert_ids: [num_tokens, topk_experts] int64; a row of -1 is padding and yields zeros.
        expert_weights: [num_tokens, topk_experts] float32, scaling included.
        w13: [num_experts, 2 * intermediate_size, hidden_size] of x's dtype; all gate rows, then all up rows.
        w2: [num_experts, hidden_size, intermediate_size] of x's dtype.
        alpha: of `swiglu_oai`. Required: a default would hide a checkpoint that asks for another.
        limit: of `swiglu_oai`. Required, as alpha.

    Returns:
        [num_tokens, hidden_size] of x's dtype; a partial sum when the ranks hold slices of the intermediate axis.

    Raises:
        ShapeError: an axis or a dtype disagrees.

    Numerics: projections in x's dtype with float32 accumulation, activation in float32; outputs are summed in
        float32 in the order of the expert slots, whatever else is in the batch.
    """
    if x.dim() != 2 or expert_ids.shape[:1] != x.shape[:1]:
        raise shape_fault("experts", "x", x, f"[{expert_ids.shape[0]}, hidden_size] for these expert_ids")
    if expert_ids.dim() != 2 or expert_ids.dtype != torch.int64:
        raise shape_fault("experts", "expert_ids", expert_ids, "[num_tokens, topk_experts] int64")
    if expert_weights.shape != expert_ids.shape or expert_weights.dtype != torch.float32:
        raise shape_fault("experts", "expert_weights", expert_weights, f"{list(expert_ids.shape)} float32")
    num_experts, hidden_size, intermediate_size = w2.shape if w2.dim() == 3 else (0, 0, 0)
    if hidden_size != x.shape[1] or w2.dtype != x.dtype:
        raise shape_fault("experts", "w2", w2, f"[num_experts, {x.shape[1]}, intermediate_size] {x.dtype}")
    w13_shape = (num_experts, 2 * intermediate_size, hidden_size)
    if w13.shape != w13_shape or w13.dtype != x.dtype:
        raise shape_fault("experts", "w13", w13, f"{list(w13_shape)} {x.dtype}")
    return select("moe/experts", x.device.type).function(x, expert_ids, expert_weights, w13, w2, alpha, limit)
