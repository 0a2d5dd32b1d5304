"""Add up the partial products of a gate-and-up projection, and apply the family's gated activation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from slipstream.kernels.faults import shape_fault
from slipstream.kernels.select import select

if TYPE_CHECKING:
    from jaxtyping import BFloat16, Float32


def sum_swiglu_oai(
    parts: Float32[Tensor, "num_splits num_tokens twice_intermediate_size"], alpha: float, limit: float
) -> BFloat16[Tensor, "num_tokens intermediate_size"]:
    """Return `swiglu_oai` of the sum of the parts, rounded to bfloat16 first.

    Args:
        parts: [num_splits, num_tokens, 2 * intermediate_size] float32; partial products, as `linear/matmul_mxfp8`
            leaves them; all gates, then all ups.
        alpha: of `swiglu_oai`. Required: a default would hide a checkpoint that asks for another.
        limit: of `swiglu_oai`. Required, as alpha.

    Returns:
        [num_tokens, intermediate_size] bfloat16.

    Raises:
        ShapeError: no split, an odd last axis, or another dtype.

    Graph: nothing is read on the host.
    Numerics: the sum in float32 in order of the first axis, rounded to bfloat16; then as `swiglu_oai`, to the bit.
    """
    if parts.dim() != 3 or not len(parts) or parts.shape[2] % 2 or parts.dtype != torch.float32:
        allowed = "[num_splits, num_tokens, 2 * intermediate_size] float32, at least one split"
        raise shape_fault("sum_swiglu_oai", "parts", parts, allowed)
    return select("moe/sum_swiglu_oai", parts.device.type).function(parts, alpha, limit)
