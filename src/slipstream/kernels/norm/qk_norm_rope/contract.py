"""Normalise attention heads one by one and rotate the leading part of each.

One call serves all heads of a fused projection: queries, keys, index queries and the index key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from slipstream.kernels.faults import shape_fault
from slipstream.kernels.select import select

if TYPE_CHECKING:
    from jaxtyping import Float, Int64


def qk_norm_rope(
    x: Float[Tensor, "num_tokens num_heads head_dim"],
    weight: Float[Tensor, "num_kinds head_dim"] | None,
    kind_of_head: Int64[Tensor, "num_heads"] | None,
    eps: float,
    gemma: bool,
    rope_table: Float[Tensor, "max_positions rotary_dim"],
    positions: Int64[Tensor, "num_tokens"],
) -> Float[Tensor, "num_tokens num_heads head_dim"]:
    """Return the heads, each normalised over its own width and then rotated by its token's position.

    Dimension i < rotary_dim / 2 turns with dimension i + rotary_dim / 2; the dimensions from rotary_dim on pass.

    Args:
        x: [num_tokens, num_heads, head_dim] float32 or bfloat16; the last axis contiguous.
        weight: [num_kinds, head_dim] norm weights, or None to rotate without a norm.
        kind_of_head: [num_heads] int64; row of `weight` that a head uses; None exactly when weight is None.
        eps: added to the mean square of a head.
        gemma: the gain is 1 + weight.
        rope_table: [max_positions, rotary_dim] float32; rotary_dim / 2 cosines, then as many sines.
        positions: [num_tokens] int64; -1 (padding) rotates as 0 does.

    Returns:
        [num_tokens, num_heads, head_dim] contiguous, of x's dtype; never a view of x.

    Raises:
        ShapeError: an axis or a dtype disagrees.

    Numerics: norm and rotation in float32, one rounding at the end.
    Source: config fields qk_norm_type, rotary_dim, partial_rotary_factor.
    """
    if x.dim() != 3 or positions.dim() != 1 or positions.shape[0] != x.shape[0]:
        raise shape_fault("qk_norm_rope", "x", x, f"[{positions.shape[0]}, num_heads, head_dim] for these positions")
    if positions.dtype != torch.int64:
        raise shape_fault("qk_norm_rope", "positions", positions, "[num_tokens] int64")
    rotary_dim = rope_table.shape[-1]
    if rope_table.dim() != 2 or rotary_dim % 2 or rotary_dim > x.shape[2] or rope_table.dtype != torch.float32:
        raise shape_fault("qk_norm_rope", "rope_table", rope_table, f"[max_positions, even, <= {x.shape[2]}] float32")
    if (weight is None) != (kind_of_head is None):
        given = x if weight is None else weight
        raise shape_fault("qk_norm_rope", "weight", given, "given together with kind_of_head, or neither")
    if weight is not None and kind_of_head is not None:
        if weight.dim() != 2 or weight.shape[1] != x.shape[2]:
            raise shape_fault("qk_norm_rope", "weight", weight, f"[num_kinds, {x.shape[2]}]")
        if kind_of_head.shape != x.shape[1:2] or kind_of_head.dtype != torch.int64:
            raise shape_fault("qk_norm_rope", "kind_of_head", kind_of_head, f"[{x.shape[1]}] int64")
    function = select("norm/qk_norm_rope", x.device.type).function
    return function(x, weight, kind_of_head, eps, gemma, rope_table, positions)
