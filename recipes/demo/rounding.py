"""Round weights to MXFP8 the way the shipped file stores them, and let gradients pass as if nothing had been rounded.

A group is 32 neighbours along the input axis; its scale is the least power of two with which the largest of them stays
within e4m3. Plain torch on purpose: the engine has its own reader and writer of this format, and a test compares them.
"""

from __future__ import annotations

import torch
from torch import Tensor

GROUP = 32
LARGEST = 448.0
FRACTION_BITS = 23
FRACTION_OF_LARGEST = 0b110 << 20  # 448 = 1.75 * 2^8 as float32
SHIFT_OF_LARGEST = 8
LEAST_EXPONENT, KEPT_FRACTION_BITS = 127 - 6, 3  # of e4m3, the exponent with the bias of float32
LEAST_CODE, MOST_CODE, CODE_OF_ONE = 3, 245, 127


def scale_codes(groups: Tensor) -> Tensor:
    """Return the e8m0 code of every group of the last axis, [...] int32; all-zero groups get a factor of one."""
    bits = groups.float().abs().amax(-1).view(torch.int32)
    is_over = (bits & ((1 << FRACTION_BITS) - 1)) > FRACTION_OF_LARGEST
    codes = ((bits >> FRACTION_BITS) - SHIFT_OF_LARGEST + is_over).clamp(LEAST_CODE, MOST_CODE)
    return torch.where(bits == 0, CODE_OF_ONE, codes)


def factors(codes: Tensor) -> Tensor:
    """Return 2^(code - 127) in float32 for codes of 1 to 254."""
    return (codes.int() << FRACTION_BITS).view(torch.float32)


def quantise(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return e4m3 values [..., in] and uint8 scale codes [..., in / 32] of a weight [..., in]."""
    groups = weight.float().unflatten(-1, (-1, GROUP))
    codes = scale_codes(groups)
    values = (groups * factors(2 * CODE_OF_ONE - codes).unsqueeze(-1)).clamp(-LARGEST, LARGEST)
    return values.to(torch.float8_e4m3fn).flatten(-2), codes.to(torch.uint8)


def dequantise(values: Tensor, codes: Tensor) -> Tensor:
    """Return the float32 weight that values and codes stand for."""
    return (values.float().unflatten(-1, (-1, GROUP)) * factors(codes).unsqueeze(-1)).flatten(-2)


def to_e4m3(scaled: Tensor) -> Tensor:
    """Round float32 values of at most 448 to what e4m3 holds, ties to even, without leaving float32.

    A cast there and back says the same, but a compiler may take it for one that does nothing.
    """
    exponent = (scaled.view(torch.int32) >> FRACTION_BITS) & 0xFF
    step = exponent.clamp(min=LEAST_EXPONENT) - KEPT_FRACTION_BITS
    return torch.round(scaled * factors(2 * CODE_OF_ONE - step)) * factors(step)


def rounded(weight: Tensor) -> Tensor:
    """Return the weight [..., in] as it will be read back; the gradient is that of the weight itself."""
    groups = weight.detach().float().unflatten(-1, (-1, GROUP))
    codes = scale_codes(groups)
    scaled = (groups * factors(2 * CODE_OF_ONE - codes).unsqueeze(-1)).clamp(-LARGEST, LARGEST)
    kept = to_e4m3(scaled) * factors(codes).unsqueeze(-1)
    return weight + (kept.flatten(-2) - weight.detach())
