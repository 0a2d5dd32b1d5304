"""MXFP8: e4m3 values with one e8m0 scale, a power of two, per 32 consecutive columns; and how to make them.

Stored as `<name>` [out, in] F8_E4M3 and `<name>_scale_inv` [out, in / 32] U8 or F8_E8M0. Despite its name the scale
multiplies: value = element * 2^(code - 127). Not here: which tensors are stored so (`find`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from slipstream.base.errors import CheckpointError, ShapeError
from slipstream.config.quantization.spec import MXFP8
from slipstream.weights.formats.interface import Parts, check_whole_groups, group_source
from slipstream.weights.reader import CheckpointReader
from slipstream.weights.rules import SourceIndex

GROUP_SIZE = 32
SCALE_BIAS = 127
E4M3_MAX = 448.0
# Above this code 448 * 2^(code - 127) comes near the end of bfloat16 and float32; no weight needs it.
MAX_SCALE_CODE = 245
SCALE_NAN = 255
# Below this code the smallest e4m3 step, 2^-9, times the scale is finer than bfloat16's smallest number, 2^-133.
MIN_SCALE_CODE = 3
SCALE_SUFFIX = "_scale_inv"
SCALE_DTYPES = ("U8", "F8_E8M0")
_MANTISSA_BITS = 23
_MANTISSA_MASK = (1 << _MANTISSA_BITS) - 1
_MANTISSA_OF_448 = 0x600000  # 448 = 1.75 * 2^8
_EXPONENT_OF_448 = 8


class Mxfp8:
    """Reader of the format. Values come as float32, and are exact in bfloat16 too."""

    name = MXFP8
    group_size = GROUP_SIZE

    def stored_names(self, name: str) -> tuple[str, ...]:
        """Return values and scales."""
        return (name, f"{name}{SCALE_SUFFIX}")

    def unused_names(self, name: str) -> dict[str, str]:
        """Return the scale of activations, which are not quantised here."""
        return {f"{name.removesuffix('weight')}input_scale": "activations are not quantised"}

    def shape(self, reader: CheckpointReader, name: str) -> tuple[int, ...]:
        """Return the shape, after a look at the scales' shape and dtype.

        Raises:
            CheckpointError: scales are missing, of another dtype, or not one per group.
        """
        shape, scale = reader.shape(name), f"{name}{SCALE_SUFFIX}"
        if scale not in reader.names:
            raise CheckpointError(
                f"{reader.file(name)}: the tensor {name} is stored as F8_E4M3 without its scales {scale}; without them "
                "the values mean nothing: copy or download the checkpoint again"
            )
        if reader.dtype(scale) not in SCALE_DTYPES:
            raise CheckpointError(
                f"{reader.file(scale)}: the scales {scale} are stored as {reader.dtype(scale)}; allowed for mxfp8: "
                f"{', '.join(SCALE_DTYPES)} (powers of two). Other float8 formats are not supported yet"
            )
        expected = (*shape[:-1], shape[-1] // GROUP_SIZE)
        if shape[-1] % GROUP_SIZE or reader.shape(scale) != expected:
            raise CheckpointError(
                f"{reader.file(scale)}: the scales {scale} have shape {list(reader.shape(scale))} for values of shape "
                f"{list(shape)}; expected one per {GROUP_SIZE} columns, {list(expected)}"
            )
        return shape

    def parts(self, reader: CheckpointReader, name: str, source: SourceIndex) -> Parts:
        """Return values and scale codes (uint8) of whole groups of columns."""
        groups = group_source(self.shape(reader, name), source, GROUP_SIZE)
        check_whole_groups(groups, GROUP_SIZE, name)
        return Parts(reader.read(name, groups.columns(GROUP_SIZE)), _read_codes(reader, name, groups.groups), None)

    def read(self, reader: CheckpointReader, name: str, source: SourceIndex) -> Tensor:
        """Return values as float32; columns may cut groups.

        Raises:
            CheckpointError: a value or a scale that is not a number, or a scale beyond bfloat16.
        """
        groups = group_source(self.shape(reader, name), source, GROUP_SIZE)
        values = reader.read(name, groups.columns(GROUP_SIZE))
        wide = dequantise_mxfp8(values, _read_codes(reader, name, groups.groups))[..., groups.trim]
        if wide.isnan().any():
            raise CheckpointError(f"{reader.file(name)}: the tensor {name} holds NaN; copy or download it again")
        return wide


def _read_codes(reader: CheckpointReader, name: str, index: SourceIndex) -> Tensor:
    scale = f"{name}{SCALE_SUFFIX}"
    codes = reader.read(scale, index).view(torch.uint8)
    highest = int(codes.max()) if codes.numel() else 0
    if highest > MAX_SCALE_CODE:
        meaning = "NaN" if highest == SCALE_NAN else f"2^{highest - SCALE_BIAS}"
        raise CheckpointError(
            f"{reader.file(scale)}: the scales {scale} hold the code {highest} ({meaning}); allowed: 0 to "
            f"{MAX_SCALE_CODE}, so that every value fits bfloat16. The file is damaged: copy or download it again"
        )
    return codes


def quantise_mxfp8(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return a weight as e4m3 values and e8m0 scale codes.

    The exponent of a group is the least k with amax <= 448 * 2^k, so that nothing saturates; values round to nearest,
    ties to even. Runs on any device without waiting for it.

    Args:
        weight: [..., in] float32, bfloat16 or float16; in is a multiple of 32; finite. NaN stays NaN.

    Returns:
        values: [..., in] float8_e4m3fn.
        scales: [..., in / 32] uint8; 3 to 245; 127 (a factor of one) for a group of zeros.

    Raises:
        ShapeError: the last axis is not a multiple of 32.

    Numerics: exact powers of two throughout; only the rounding to e4m3 loses anything, at most 1/16 of an element that
        is not below 2^-6 of its group's scale. Groups with amax above 448 * 2^118 saturate.
    """
    groups = _groups(weight.float(), weight)
    bits = groups.abs().amax(dim=-1).contiguous().view(torch.int32)
    exponent = bits >> _MANTISSA_BITS
    exceeds = (bits & _MANTISSA_MASK) > _MANTISSA_OF_448
    codes = (exponent - _EXPONENT_OF_448 + exceeds).clamp(MIN_SCALE_CODE, MAX_SCALE_CODE)
    codes = torch.where(bits == 0, SCALE_BIAS, codes).to(torch.uint8)
    scaled = groups * _powers_of_two(2 * SCALE_BIAS - codes.int()).unsqueeze(-1)
    values = scaled.clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn)
    return values.reshape(weight.shape), codes


def dequantise_mxfp8(values: Tensor, scales: Tensor) -> Tensor:
    """Return the weight that values and scale codes stand for.

    Args:
        values: [..., in] float8_e4m3fn.
        scales: [..., in / 32] uint8 or float8_e8m0fnu; codes 0 to 246.

    Returns:
        [..., in] float32, exact.

    Raises:
        ShapeError: the axes do not belong together.
    """
    groups = _groups(values.float(), values)
    if scales.shape != groups.shape[:-1]:
        raise ShapeError(
            f"MXFP8 scales of shape {list(scales.shape)} for values of shape {list(values.shape)}; expected "
            f"{list(groups.shape[:-1])}: one per {GROUP_SIZE} columns"
        )
    factors = _powers_of_two(scales.view(torch.uint8).int())
    return (groups * factors.unsqueeze(-1)).reshape(values.shape)


def _groups(wide: Tensor, given: Tensor) -> Tensor:
    if given.dim() < 1 or given.shape[-1] % GROUP_SIZE:
        raise ShapeError(
            f"MXFP8 takes rows of a multiple of {GROUP_SIZE} columns, given a tensor of shape {list(given.shape)}; "
            "keep such a tensor in bfloat16"
        )
    return wide.reshape(*given.shape[:-1], given.shape[-1] // GROUP_SIZE, GROUP_SIZE)


def _powers_of_two(codes: Tensor) -> Tensor:
    """Return 2^(code - 127) as float32, made from bits: `exp2` need not be exact. Codes are int32, 0 to 254."""
    bits = torch.where(codes == 0, 1 << (_MANTISSA_BITS - 1), codes << _MANTISSA_BITS)
    return bits.view(torch.float32)
