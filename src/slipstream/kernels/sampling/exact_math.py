"""An exponential and a logarithm that have the same bits on every device.

The libraries of two devices may differ in the last place, and what is kept or drawn must not. These are sums and
products in float64 in one stated order; `triton_math` takes the same steps. Not here: speed for its own sake.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

LOWEST_SCORE = -700.0
"""Scores below it weigh nothing; the weights above it are normal numbers."""
EXP_TERMS = tuple(1.0 / math.factorial(power) for power in range(11, -1, -1))
"""Coefficients of the series of e^x, highest power first."""
LOG_TERMS = tuple(2.0 / power for power in range(21, 0, -2))
"""Coefficients of the odd series of log((1 + s) / (1 - s)), highest power first."""
LOG2_E = 1.4426950408889634
LN_2 = 0.6931471805599453
SQRT_HALF_BITS = 0x3FE6A09E667F3BCD
_EXPONENT_BIAS = 1023
_MANTISSA_BITS = 52


def relative_weight(score: Tensor) -> Tensor:
    """Return e^score.

    Args:
        score: [...] float32; 0 or less, -inf included.

    Returns:
        [...] float64; 0 below `LOWEST_SCORE`, else within 2^-44 of e^score, relative to it; e^0 is 1 exactly.
    """
    bounded = score.double().clamp(min=LOWEST_SCORE)
    whole = (bounded * LOG2_E + 0.5).floor()
    rest = (bounded * LOG2_E - whole) * LN_2
    series = torch.full_like(rest, EXP_TERMS[0])
    for term in EXP_TERMS[1:]:
        series = series.mul_(rest).add_(term)
    power = ((whole.long() + _EXPONENT_BIAS) << _MANTISSA_BITS).view(torch.float64)
    return torch.where(score >= LOWEST_SCORE, series * power, 0.0)


def fixed_point(weight: Tensor, num_bits: int) -> Tensor:
    """Return weights in units of 2^-num_bits as int64, whose sums do not depend on their order.

    Args:
        weight: [...] float64; 0 or more.
        num_bits: such that no sum reaches 2^63.
    """
    return (weight * 2.0**num_bits + 0.5).long()


def exact_log(weight: Tensor) -> Tensor:
    """Return log(weight).

    Args:
        weight: [...] float64; normal numbers and 0.

    Returns:
        [...] float64; -inf for 0, else within 2^-44, relative where the logarithm is above 1.
    """
    # Counted from sqrt(1/2), the bits split into a power of two and a factor in [sqrt(1/2), sqrt(2)).
    offset = weight.view(torch.int64) - SQRT_HALF_BITS
    power = offset >> _MANTISSA_BITS
    factor = (weight.view(torch.int64) - (power << _MANTISSA_BITS)).view(torch.float64)
    ratio = (factor - 1.0) / (factor + 1.0)
    square = ratio * ratio
    series = torch.full_like(square, LOG_TERMS[0])
    for term in LOG_TERMS[1:]:
        series = series.mul_(square).add_(term)
    return torch.where(weight > 0, power.double() * LN_2 + ratio * series, -torch.inf)
