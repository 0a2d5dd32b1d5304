"""`exact_math` in Triton, step by step.

HAZARD: a kernel that calls these is launched with `enable_fp_fusion=False`: a product that is fused into the sum behind
it is not rounded, and the host rounds it.
"""

from __future__ import annotations

import triton
import triton.language as tl

from slipstream.kernels.sampling import exact_math

LOWEST_SCORE = tl.constexpr(exact_math.LOWEST_SCORE)
LOG2_E = tl.constexpr(exact_math.LOG2_E)
LN_2 = tl.constexpr(exact_math.LN_2)
SQRT_HALF_BITS = tl.constexpr(exact_math.SQRT_HALF_BITS)


@triton.jit
def wide(value: tl.constexpr):
    """Return a number in float64; a literal would be taken in float32."""
    return tl.full((), value, tl.float64)


@triton.jit
def relative_weight(score):
    """Return float64 e^score of float32 scores of 0 or less; 0 below the lowest."""
    bounded = tl.maximum(score.to(tl.float64), wide(LOWEST_SCORE))
    scaled = bounded * wide(LOG2_E)
    whole = tl.floor(scaled + wide(0.5))
    rest = (scaled - whole) * wide(LN_2)
    series = tl.zeros_like(rest) + wide(1.0 / 39916800)
    series = series * rest + wide(1.0 / 3628800)
    series = series * rest + wide(1.0 / 362880)
    series = series * rest + wide(1.0 / 40320)
    series = series * rest + wide(1.0 / 5040)
    series = series * rest + wide(1.0 / 720)
    series = series * rest + wide(1.0 / 120)
    series = series * rest + wide(1.0 / 24)
    series = series * rest + wide(1.0 / 6)
    series = series * rest + wide(0.5)
    series = series * rest + wide(1.0)
    series = series * rest + wide(1.0)
    power = ((whole.to(tl.int64) + 1023) << 52).to(tl.float64, bitcast=True)
    return tl.where(score >= LOWEST_SCORE, series * power, wide(0.0))


@triton.jit
def fixed_point(weight, NUM_BITS: tl.constexpr):
    """Return int64 weights in units of 2^-NUM_BITS."""
    return (weight * wide(2.0**NUM_BITS) + wide(0.5)).to(tl.int64)


@triton.jit
def exact_log(weight):
    """Return float64 log of float64 weights; -inf for 0."""
    bits = weight.to(tl.int64, bitcast=True)
    power = (bits - SQRT_HALF_BITS) >> 52
    factor = (bits - (power << 52)).to(tl.float64, bitcast=True)
    ratio = (factor - wide(1.0)) / (factor + wide(1.0))
    square = ratio * ratio
    series = tl.zeros_like(square) + wide(2.0 / 21)
    series = series * square + wide(2.0 / 19)
    series = series * square + wide(2.0 / 17)
    series = series * square + wide(2.0 / 15)
    series = series * square + wide(2.0 / 13)
    series = series * square + wide(2.0 / 11)
    series = series * square + wide(2.0 / 9)
    series = series * square + wide(2.0 / 7)
    series = series * square + wide(2.0 / 5)
    series = series * square + wide(2.0 / 3)
    series = series * square + wide(2.0)
    return tl.where(weight > 0, power.to(tl.float64) * wide(LN_2) + ratio * series, wide(float("-inf")))
