"""Normalise rows by their root mean square. Not here: a residual sum (`add_rms_norm`), heads (`qk_norm_rope`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from slipstream.kernels.faults import shape_fault
from slipstream.kernels.select import select

if TYPE_CHECKING:
    from jaxtyping import Float


def rms_norm(
    x: Float[Tensor, "num_tokens hidden_size"],
    weight: Float[Tensor, "hidden_size"],
    eps: float,
    gemma: bool,
) -> Float[Tensor, "num_tokens hidden_size"]:
    """Return x / sqrt(mean(x^2) + eps) times the gain of each column.

    Args:
        x: [num_tokens, hidden_size] float32 or bfloat16.
        weight: [hidden_size] any float dtype; the gain, or the gain's offset from 1 when `gemma`.
        eps: added to the mean square.
        gemma: the gain is 1 + weight. Weights stay as stored: nothing adds the 1 at load.

    Returns:
        [num_tokens, hidden_size] of x's dtype.

    Raises:
        ShapeError: an axis disagrees.

    Numerics: float32 throughout, one rounding at the end.
    """
    if x.dim() != 2 or weight.dim() != 1 or x.shape[1] != weight.shape[0]:
        raise shape_fault("rms_norm", "x", x, f"[num_tokens, {weight.shape[-1]}] for this weight")
    return select("norm/rms_norm", x.device.type).function(x, weight, eps, gemma)
