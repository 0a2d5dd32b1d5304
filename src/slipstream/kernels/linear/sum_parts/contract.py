"""Add up the partial sums of a product. Not here: the product (`matmul_mxfp8`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from slipstream.kernels.faults import shape_fault
from slipstream.kernels.select import select

if TYPE_CHECKING:
    from jaxtyping import Float, Float32


def sum_parts(
    parts: Float32[Tensor, "num_splits num_tokens out_features"], dtype: torch.dtype
) -> Float[Tensor, "num_tokens out_features"]:
    """Return the sum over the first axis, in order: (p0 + p1) + p2 and so on.

    Args:
        parts: [num_splits, num_tokens, out_features] float32, at least one split.
        dtype: of the result, float32 or bfloat16.

    Returns:
        [num_tokens, out_features] of that dtype.

    Raises:
        ShapeError: an axis or a dtype disagrees.

    Numerics: float32 sums in the order given, one rounding at the end: the same to the bit everywhere.
    """
    if parts.dim() != 3 or parts.dtype != torch.float32 or not parts.shape[0]:
        raise shape_fault("sum_parts", "parts", parts, "[num_splits >= 1, num_tokens, out_features] float32")
    if dtype not in (torch.float32, torch.bfloat16):
        raise shape_fault("sum_parts", "parts", parts, f"summed into float32 or bfloat16, not {dtype}")
    total: torch.Tensor = select("linear/sum_parts", parts.device.type).function(parts, dtype)
    return total
