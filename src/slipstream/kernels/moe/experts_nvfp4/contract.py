"""Run routed experts whose weights are NVFP4 and sum their weighted outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from slipstream.kernels.faults import shape_fault
from slipstream.kernels.moe.experts_nvfp4.layout import TILE, TILE_WORDS
from slipstream.kernels.select import select

if TYPE_CHECKING:
    from jaxtyping import BFloat16, Float32, Int32, Int64


def experts_nvfp4(
    x: BFloat16[Tensor, "num_tokens hidden_size"],
    expert_ids: Int64[Tensor, "num_tokens topk_experts"],
    expert_weights: Float32[Tensor, "num_tokens topk_experts"],
    w13: Int32[Tensor, "num_experts twice_intermediate_tiles hidden_tiles tile_words"],
    w13_scale: Float32[Tensor, "num_experts"],
    w2: Int32[Tensor, "num_experts hidden_tiles intermediate_tiles tile_words"],
    w2_scale: Float32[Tensor, "num_experts"],
    alpha: float,
    limit: float,
) -> BFloat16[Tensor, "num_tokens hidden_size"]:
    """Return the sum over a token's experts of weight * w2 @ swiglu_oai(w13 @ x).

    Args:
        x: [num_tokens, hidden_size] bfloat16; hidden_size a multiple of 128.
        expert_ids: [num_tokens, topk_experts] int64, different in a row; a row of -1 is padding and yields zeros.
        expert_weights: [num_tokens, topk_experts] float32, scaling included.
        w13: [num_experts, 2 * intermediate_size / 128, hidden_size / 128, 2304] int32 of `layout.pack`, with rows in
            the order of `layout.interleave`; intermediate_size, as held by this rank, a multiple of 128.
        w13_scale: [num_experts] float32; the factor of each matrix, one for gate and up.
        w2: [num_experts, hidden_size / 128, intermediate_size / 128, 2304] int32 of `layout.pack`.
        w2_scale: [num_experts] float32; the factor of each matrix.
        alpha: of `swiglu_oai`. Required: a default would hide a checkpoint that asks for another.
        limit: of `swiglu_oai`. Required, as alpha.

    Returns:
        [num_tokens, hidden_size] bfloat16; a partial sum when the ranks hold slices of the intermediate axis.

    Raises:
        ShapeError: an axis or a dtype disagrees.

    Numerics: value times group scale is exact in bfloat16; products accumulate in float32, the factor of the matrix
        multiplies the sum; the activation is computed in float32 and rounded to bfloat16; outputs are summed in
        float32 in the order of the expert slots, whatever else is in the batch.
    """
    name = "experts_nvfp4"
    if x.dim() != 2 or x.dtype != torch.bfloat16 or x.shape[1] % TILE or expert_ids.shape[:1] != x.shape[:1]:
        allowed = f"[{expert_ids.shape[0]}, hidden_size] bfloat16 for these expert_ids, hidden_size % {TILE} == 0"
        raise shape_fault(name, "x", x, allowed)
    if expert_ids.dim() != 2 or expert_ids.dtype != torch.int64:
        raise shape_fault(name, "expert_ids", expert_ids, "[num_tokens, topk_experts] int64")
    if expert_weights.shape != expert_ids.shape or expert_weights.dtype != torch.float32:
        raise shape_fault(name, "expert_weights", expert_weights, f"{list(expert_ids.shape)} float32")
    num_experts, hidden_tiles, width_tiles, _ = w2.shape if w2.dim() == 4 else (0, 0, 0, 0)
    wanted = (num_experts, x.shape[1] // TILE, width_tiles, TILE_WORDS)
    if w2.shape != wanted or w2.dtype != torch.int32:
        allowed = f"[num_experts, {x.shape[1] // TILE}, intermediate_size / {TILE}, {TILE_WORDS}] int32 of layout.pack"
        raise shape_fault(name, "w2", w2, allowed)
    wanted = (num_experts, 2 * width_tiles, hidden_tiles, TILE_WORDS)
    if w13.shape != wanted or w13.dtype != torch.int32:
        raise shape_fault(name, "w13", w13, f"{list(wanted)} int32 of layout.pack")
    for which, scale in (("w13_scale", w13_scale), ("w2_scale", w2_scale)):
        if scale.shape != (num_experts,) or scale.dtype != torch.float32:
            raise shape_fault(name, which, scale, f"[{num_experts}] float32")
    function = select("moe/experts_nvfp4", x.device.type).function
    return function(x, expert_ids, expert_weights, w13, w13_scale, w2, w2_scale, alpha, limit)
