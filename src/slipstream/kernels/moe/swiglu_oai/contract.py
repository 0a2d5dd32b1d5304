"""The clamped gated activation of the family, between the two projections of an MLP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from slipstream.kernels.faults import shape_fault
from slipstream.kernels.select import select

if TYPE_CHECKING:
    from jaxtyping import Float


def swiglu_oai(
    gate_up: Float[Tensor, "num_tokens twice_intermediate_size"], alpha: float, limit: float
) -> Float[Tensor, "num_tokens intermediate_size"]:
    """Return (up + 1) * gate * sigmoid(alpha * gate) of clamped halves.

    Args:
        gate_up: [num_tokens, 2 * intermediate_size] float32 or bfloat16; all gates, then all ups, not interleaved.
        alpha: slope inside the sigmoid.
        limit: gate is clamped to at most +limit and never from below; up is clamped to -limit .. +limit.

    Returns:
        [num_tokens, intermediate_size] of gate_up's dtype.

    Raises:
        ShapeError: the last axis is odd.

    Numerics: float32, one rounding at the end.
    Source: config fields hidden_act, swiglu_alpha, swiglu_limit; the 1 is fixed and has no field.
    """
    if gate_up.dim() != 2 or gate_up.shape[1] % 2:
        raise shape_fault("swiglu_oai", "gate_up", gate_up, "[num_tokens, 2 * intermediate_size]")
    return select("moe/swiglu_oai", gate_up.device.type).function(gate_up, alpha, limit)
