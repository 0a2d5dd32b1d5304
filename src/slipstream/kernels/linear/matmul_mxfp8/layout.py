"""The run-time layout of MXFP8 weights, packed once at load from the checkpoint's form and unpacked exactly.

The matrix is cut into units of 64 output rows and 64 inner columns, two scale groups wide. A unit is 2,048 words of
16 bits in the order in which the threads of one warp group hold the left operand of Hopper's product, so that a
thread's 16-byte load needs no exchange with others. A word holds the codes of column j of the first group and of
column j of the second, with the first already where a bfloat16 has its sign and its low exponent and high mantissa
bits: one mask makes it a number, 2^-120 too small, and multiplying by the scale makes up for that.

Not here: the split of the inner axis among thread blocks; any whole number of units is one stretch of memory.
"""

from __future__ import annotations

import torch
from torch import Tensor

from slipstream.base.errors import KernelError

UNIT = 64
"""Output rows and inner columns of a unit."""
GROUP = 32
"""Inner columns that share a scale."""
UNIT_WORDS = UNIT * GROUP
CHUNK = 4
"""Units whose scales, for one row, are one word of 64 bits."""
MIN_SCALE, MAX_SCALE = 3, 134
"""Biased exponents (2^-124 to 2^7) whose product with every code is exact in bfloat16."""

_NAN_CODE = 0x7F
# A unit's words, from the slowest axis to the fastest: k4, rows 5:4, rows 2:0, k2:1, k3, row 3, k0.
_WORD_SHAPE = (2, 4, 8, 4, 2, 2, 2)


def pack(codes: Tensor, scales: Tensor) -> tuple[Tensor, Tensor]:
    """Return the run-time form of a weight matrix.

    Args:
        codes: [out_features, in_features] float8_e4m3fn, or uint8 with the same bits.
        scales: [out_features, in_features / 32] uint8 biased exponents (e8m0), or float8_e8m0fnu.

    Returns:
        words: [out_units, in_units, 2048] int16, and scale words [out_units, in_units / 4 rounded up, 64] int64: byte
        2 * u + g holds the scale of group g of the u-th of four units. Rows are filled up to a multiple of 64 with
        zeros.

    Raises:
        KernelError: in_features is no multiple of 64, or a code or a scale has no exact product in bfloat16.
    """
    codes, scales = codes.view(torch.uint8), scales.view(torch.uint8)
    out_features, in_features = codes.shape
    if in_features % UNIT or scales.shape != (out_features, in_features // GROUP):
        raise KernelError(
            f"matmul_mxfp8: codes are {list(codes.shape)} and scales {list(scales.shape)}; allowed are in_features in "
            f"multiples of {UNIT} and one scale per {GROUP} of them; give such matrices another format"
        )
    _check_values(codes, scales)
    num_fill = -out_features % UNIT
    codes = torch.nn.functional.pad(codes, (0, 0, 0, num_fill))
    # A scale of 1 in the rows that fill up.
    scales = torch.nn.functional.pad(scales, (0, 0, 0, num_fill), value=127)
    out_units, in_units = codes.shape[0] // UNIT, in_features // UNIT
    # Axes: out_units, in_units, group, row, column.
    by_unit = codes.view(out_units, UNIT, in_units, 2, GROUP).permute(0, 2, 3, 1, 4).int()
    first, second = by_unit.unbind(2)
    words = (first & 0x80) << 8 | (first & 0x7F) << 4
    words |= (second & 0x80) << 4 | (second & 0x70) << 8 | second & 0x0F
    # row = (rows 5:4, row 3, rows 2:0), column = (k4, k3, k2:1, k0)
    parted = words.view(out_units, in_units, 4, 2, 8, 2, 2, 4, 2).permute(0, 1, 5, 2, 4, 7, 6, 3, 8)
    chunks = -(-in_units // CHUNK)
    scales = torch.nn.functional.pad(scales, (0, 2 * (chunks * CHUNK - in_units)))
    scale_words = scales.view(out_units, UNIT, chunks, 2 * CHUNK).permute(0, 2, 1, 3).contiguous().view(torch.int64)
    words = _as_int16(parted.reshape(out_units, in_units, UNIT_WORDS)).contiguous()
    return words, scale_words.squeeze(3).contiguous()


def unpack(words: Tensor, scale_words: Tensor, out_features: int) -> tuple[Tensor, Tensor]:
    """Return what `pack` was given, bit for bit.

    Args:
        words: [out_units, in_units, 2048] int16.
        scale_words: [out_units, in_units / 4 rounded up, 64] int64.
        out_features: rows of the matrix.

    Returns:
        codes: [out_features, in_features] float8_e4m3fn, and scales [out_features, in_features / 32] uint8.
    """
    out_units, in_units, _ = words.shape
    parted = words.int().view(out_units, in_units, *_WORD_SHAPE).permute(0, 1, 3, 7, 4, 2, 6, 5, 8)
    by_row = parted.reshape(out_units, in_units, UNIT, GROUP) & 0xFFFF
    first = by_row >> 8 & 0x80 | by_row >> 4 & 0x7F
    second = by_row >> 4 & 0x80 | by_row >> 8 & 0x70 | by_row & 0x0F
    codes = torch.stack((first, second), dim=3).to(torch.uint8).permute(0, 2, 1, 3, 4)
    scales = scale_words.contiguous().view(torch.uint8).view(out_units, -1, UNIT, 2 * CHUNK).permute(0, 2, 1, 3)
    codes = codes.reshape(out_units * UNIT, in_units * UNIT)[:out_features].contiguous()
    scales = scales.reshape(out_units * UNIT, -1)[:out_features, : in_units * 2].contiguous()
    return codes.view(torch.float8_e4m3fn), scales


def dequantise(words: Tensor, scale_words: Tensor, out_features: int) -> Tensor:
    """Return the matrix as [out_features, in_features] float32, exactly."""
    codes, scales = unpack(words, scale_words, out_features)
    factors = torch.ldexp(torch.ones_like(scales, dtype=torch.float32), scales.int() - 127)
    return codes.float() * factors.repeat_interleave(GROUP, dim=1)


def _check_values(codes: Tensor, scales: Tensor) -> None:
    """Raise KernelError on NaN codes and on scales that leave bfloat16 inexact; zeros may have any small one."""
    is_group_used = (codes.view(*scales.shape, GROUP) & _NAN_CODE).amax(2) > 0
    is_outside = ((scales < MIN_SCALE) & is_group_used) | (scales > MAX_SCALE)
    if bool(is_outside.any()) or bool(((codes & _NAN_CODE) == _NAN_CODE).any()):
        raise KernelError(
            "matmul_mxfp8: the weights hold NaN, or a scale outside 2^-124 .. 2^7; allowed are finite codes and scales "
            f"with biased exponents {MIN_SCALE} .. {MAX_SCALE}; check the checkpoint, or load it in another format"
        )


def _as_int16(words: Tensor) -> Tensor:
    """Return numbers of 16 bits as the int16 of the same bits."""
    return torch.where(words >= 1 << 15, words - (1 << 16), words).to(torch.int16)
