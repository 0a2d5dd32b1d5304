"""Add up partial products, add the result to the residual stream, and normalise the sum: one pass over every row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from slipstream.kernels.faults import shape_fault
from slipstream.kernels.select import select

if TYPE_CHECKING:
    from jaxtyping import Float, Float32


def sum_add_rms_norm(
    parts: Float32[Tensor, "num_splits num_tokens hidden_size"],
    extra: Float[Tensor, "num_tokens hidden_size"] | None,
    residual: Float[Tensor, "num_tokens hidden_size"],
    weight: Float[Tensor, "hidden_size"],
    eps: float,
    gemma: bool,
) -> tuple[Float[Tensor, "num_tokens hidden_size"], Float[Tensor, "num_tokens hidden_size"]]:
    """Return the norm of sum(parts) + extra + residual, and that sum itself.

    Args:
        parts: [num_splits, num_tokens, hidden_size] float32; partial products, as `linear/matmul_mxfp8` leaves them.
        extra: [num_tokens, hidden_size] of the residual's dtype; a second output of the layer, or None.
        residual: [num_tokens, hidden_size] float32 or bfloat16; not changed.
        weight: [hidden_size] any float dtype; the gain, or its offset from 1 when `gemma`.
        eps: added to the mean square.
        gemma: the gain is 1 + weight.

    Returns:
        normed: [num_tokens, hidden_size] of the residual's dtype.
        new_residual: [num_tokens, hidden_size] of the residual's dtype.

    Raises:
        ShapeError: an axis or a dtype disagrees.

    Graph: nothing is read on the host. A device implementation may read the weight before the kernel before it has
        ended.
    Numerics: parts are added in float32 in order of the first axis and rounded to the stream's dtype; so is that plus
        extra, and that plus the residual: as the layers do it one after the other. The norm is float32.
    """
    if residual.dim() != 2 or residual.shape[1:] != weight.shape:
        raise shape_fault("sum_add_rms_norm", "residual", residual, f"[num_tokens, {weight.shape[-1]}]")
    if parts.dim() != 3 or parts.shape[1:] != residual.shape or not len(parts) or parts.dtype != torch.float32:
        allowed = f"[num_splits, {', '.join(str(size) for size in residual.shape)}] float32, at least one split"
        raise shape_fault("sum_add_rms_norm", "parts", parts, allowed)
    if extra is not None and (extra.shape != residual.shape or extra.dtype != residual.dtype):
        allowed = f"{list(residual.shape)} {residual.dtype}, as residual"
        raise shape_fault("sum_add_rms_norm", "extra", extra, allowed)
    function = select("norm/sum_add_rms_norm", residual.device.type).function
    return function(parts, extra, residual, weight, eps, gemma)
