"""Add a layer's output to the residual stream and normalise the sum."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from slipstream.kernels.faults import shape_fault
from slipstream.kernels.select import select

if TYPE_CHECKING:
    from jaxtyping import Float


def add_rms_norm(
    x: Float[Tensor, "num_tokens hidden_size"],
    residual: Float[Tensor, "num_tokens hidden_size"],
    weight: Float[Tensor, "hidden_size"],
    eps: float,
    gemma: bool,
) -> tuple[Float[Tensor, "num_tokens hidden_size"], Float[Tensor, "num_tokens hidden_size"]]:
    """Return the norm of x + residual, and x + residual itself.

    Neither operand is changed.

    Args:
        x: [num_tokens, hidden_size] float32 or bfloat16.
        residual: [num_tokens, hidden_size] the same dtype.
        weight: [hidden_size] any float dtype; the gain, or its offset from 1 when `gemma`.
        eps: added to the mean square.
        gemma: the gain is 1 + weight.

    Returns:
        normed: [num_tokens, hidden_size] of x's dtype.
        new_residual: [num_tokens, hidden_size] of x's dtype.

    Raises:
        ShapeError: an axis or a dtype disagrees.

    Numerics: the sum is rounded to the dtype first, and that rounded sum is what is normalised, in float32.
    """
    shape = x.shape
    if len(shape) != 2 or shape[1:] != weight.shape:
        raise shape_fault("add_rms_norm", "x", x, f"[num_tokens, {weight.shape[-1]}] for this weight")
    if residual.shape != shape or residual.dtype != x.dtype:
        raise shape_fault("add_rms_norm", "residual", residual, f"{list(shape)} {x.dtype}, as x")
    return select("norm/add_rms_norm", x.device.type).function(x, residual, weight, eps, gemma)
