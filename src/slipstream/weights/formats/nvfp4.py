"""NVFP4: 4-bit e2m1 elements, one e4m3 scale per 16 consecutive columns, one float32 scale per tensor; how to make it.

Everywhere in this project the global scale multiplies: value = element * scale * global. The low nibble of a byte is
the even column. Not here: which tensors are stored so (`find`), any order that a kernel wants (its repacking).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import embedding

from slipstream.base.errors import CheckpointError, ShapeError
from slipstream.config.quantization.spec import NVFP4_M31
from slipstream.weights.formats.interface import Parts, check_whole_groups, group_source
from slipstream.weights.reader import CheckpointReader
from slipstream.weights.rules import SourceIndex

GROUP_SIZE = 16
E2M1_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # by code; bit 3 is the sign
E2M1_MAX = 6.0
E4M3_MAX = 448.0
_SMALLEST_SCALE = 2.0**-9
_SMALLEST_GLOBAL = 2.0**-126  # its inverse is a float32 too
_SIGN_BIT = 8
# Halfway points between neighbours. A tie goes to the even code: up at the second, fourth and sixth.
_MIDPOINTS = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)

_WEIGHT_ONLY = "activations are not quantised"


class Nvfp4:
    """Reader of the format in one of its two dialects.

    `nvfp4` (ModelOpt): `<name>`, `<name>_scale`, and `<name>_scale_2`, which multiplies. `nvfp4-m31`
    (compressed-tensors): `<name>_packed`, `<name>_scale`, and `<name>_global_scale`, which divides.

    Args:
        name: the dialect.
    """

    group_size = GROUP_SIZE

    def __init__(self, name: str) -> None:
        self.name = name
        divides = name == NVFP4_M31
        self._payload, self._global = ("_packed", "_global_scale") if divides else ("", "_scale_2")
        self._input = "input_global_scale" if divides else "input_scale"

    def stored_names(self, name: str) -> tuple[str, ...]:
        """Return packed elements, block scales and the global scale."""
        return (f"{name}{self._payload}", f"{name}_scale", f"{name}{self._global}")

    def unused_names(self, name: str) -> dict[str, str]:
        """Return the scale of activations, which are not quantised here."""
        return {f"{name.removesuffix('weight')}{self._input}": _WEIGHT_ONLY}

    def shape(self, reader: CheckpointReader, name: str) -> tuple[int, ...]:
        """Return the logical shape, after a look at all shapes and dtypes.

        Raises:
            CheckpointError: a part is missing, of another dtype or of another shape.
        """
        payload, scale, factor = self.stored_names(name)
        for stored, dtype in ((payload, "U8"), (scale, "F8_E4M3"), (factor, "F32")):
            if stored not in reader.names:
                raise CheckpointError(
                    f"{reader.file(payload)}: the tensor {name} is stored as {self.name}, but {stored} is missing; "
                    "copy or download the checkpoint again"
                )
            if reader.dtype(stored) != dtype:
                raise CheckpointError(
                    f"{reader.file(stored)}: the tensor {stored} is stored as {reader.dtype(stored)}; {self.name} "
                    f"needs {dtype}. Other 4-bit formats are not supported yet"
                )
        packed = reader.shape(payload)
        shape = (*packed[:-1], 2 * packed[-1])
        expected = (*shape[:-1], shape[-1] // GROUP_SIZE)
        if shape[-1] % GROUP_SIZE or reader.shape(scale) != expected:
            raise CheckpointError(
                f"{reader.file(scale)}: the scales {scale} have shape {list(reader.shape(scale))} for {list(packed)} "
                f"bytes of {payload}; expected one per {GROUP_SIZE} columns, {list(expected)}"
            )
        if reader.shape(factor) not in ((), (1,)):
            raise CheckpointError(
                f"{reader.file(factor)}: {factor} has shape {list(reader.shape(factor))}; expected one number"
            )
        return shape

    def parts(self, reader: CheckpointReader, name: str, source: SourceIndex) -> Parts:
        """Return packed bytes, block scales and the global multiplier of whole groups of columns."""
        groups = group_source(self.shape(reader, name), source, GROUP_SIZE)
        check_whole_groups(groups, GROUP_SIZE, name)
        return self._parts(reader, name, groups.columns(GROUP_SIZE // 2), groups.groups)

    def read(self, reader: CheckpointReader, name: str, source: SourceIndex) -> Tensor:
        """Return values as float32; columns may cut groups.

        Raises:
            CheckpointError: a scale that is not a positive number.
        """
        groups = group_source(self.shape(reader, name), source, GROUP_SIZE)
        packed, scales, factor = self._parts(reader, name, groups.columns(GROUP_SIZE // 2), groups.groups)
        assert factor is not None
        return dequantise_nvfp4(packed, scales, factor)[..., groups.trim]

    def _parts(self, reader: CheckpointReader, name: str, bytes_of: SourceIndex, scales_of: SourceIndex) -> Parts:
        payload, scale, stored = self.stored_names(name)
        scales = reader.read(scale, scales_of)
        factor = reader.read(stored).reshape(())
        if self.name == NVFP4_M31:
            factor = 1 / factor
        if not (factor.isfinite() and factor > 0):
            raise CheckpointError(
                f"{reader.file(stored)}: {stored} is {float(reader.read(stored)):g}; expected a finite number above "
                "zero: copy or download the file again"
            )
        wide = scales.float()
        if not bool((wide >= 0).all()):
            raise CheckpointError(
                f"{reader.file(scale)}: the scales {scale} hold NaN or a number below zero; copy or download the file "
                "again"
            )
        return Parts(reader.read(payload, bytes_of), scales, factor)


def quantise_nvfp4(weight: Tensor, global_scale: float | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Return a weight as packed elements, block scales and a global scale.

    A block's scale is its amax / 6 in units of the global scale, rounded to e4m3; elements round to nearest, ties to
    even, and saturate. Runs on any device without waiting for it.

    Args:
        weight: [..., in] float32, bfloat16 or float16; in is a multiple of 16; finite.
        global_scale: multiplier above zero; None: amax / (448 * 6) of the whole tensor. The gate and up matrices of an
            expert must share one: give both the larger of their two (`global_scale_nvfp4`).

    Returns:
        packed: [..., in / 2] uint8, even columns in the low nibbles.
        scales: [..., in / 16] float8_e4m3fn; one for a block of zeros.
        global_scale: [] float32, multiplies.

    Raises:
        ShapeError: the last axis is not a multiple of 16.
    """
    if weight.dim() < 1 or weight.shape[-1] % GROUP_SIZE:
        raise ShapeError(
            f"NVFP4 takes rows of a multiple of {GROUP_SIZE} columns, given a tensor of shape {list(weight.shape)}; "
            "keep such a tensor in bfloat16"
        )
    if global_scale is None:
        factor = global_scale_nvfp4(weight)
    else:
        factor = torch.full((), global_scale, dtype=torch.float32, device=weight.device)
    blocks = weight.float().reshape(*weight.shape[:-1], weight.shape[-1] // GROUP_SIZE, GROUP_SIZE)
    amax = blocks.abs().amax(dim=-1)
    wanted = (amax / E2M1_MAX / factor).clamp(_SMALLEST_SCALE, E4M3_MAX)
    scales = torch.where(amax == 0, 1.0, wanted).to(torch.float8_e4m3fn)
    codes = _e2m1_codes(blocks / (scales.float() * factor).unsqueeze(-1)).reshape(weight.shape)
    return codes[..., 0::2] | (codes[..., 1::2] << 4), scales, factor


def dequantise_nvfp4(packed: Tensor, scales: Tensor, global_scale: Tensor | float) -> Tensor:
    """Return the weight that packed elements and scales stand for.

    Args:
        packed: [..., in / 2] uint8.
        scales: [..., in / 16] float8_e4m3fn.
        global_scale: multiplier; a number or a tensor of one element.

    Returns:
        [..., in] float32.

    Raises:
        ShapeError: the axes do not belong together.

    Numerics: element * scale is exact; the product with the global scale rounds once.
    """
    shape = (*packed.shape[:-1], packed.shape[-1] * 2)
    if scales.shape[:-1] != shape[:-1] or scales.shape[-1] * GROUP_SIZE != shape[-1]:
        raise ShapeError(
            f"NVFP4 scales of shape {list(scales.shape)} for packed bytes of shape {list(packed.shape)}; expected "
            f"{[*shape[:-1], shape[-1] // GROUP_SIZE]}: one per {GROUP_SIZE} columns, two columns a byte"
        )
    table = torch.tensor([*E2M1_VALUES, *(-value for value in E2M1_VALUES)], device=packed.device)
    pairs = torch.stack((table.repeat(16), table.repeat_interleave(16)), dim=-1)  # [byte, low and high nibble]
    blocks = embedding(packed.int(), pairs).reshape(*scales.shape, GROUP_SIZE) * scales.float().unsqueeze(-1)
    factor = torch.as_tensor(global_scale, dtype=torch.float32, device=packed.device).reshape(())
    return (blocks * factor).reshape(shape)


def global_scale_nvfp4(*weights: Tensor) -> Tensor:
    """Return the global multiplier that weights share: amax / (448 * 6), or one if all are zero.

    Args:
        weights: at least one; any shapes, one device.

    Returns:
        [] float32.
    """
    amax = torch.stack([weight.float().abs().amax() for weight in weights]).amax()
    return torch.where(amax == 0, 1.0, (amax / (E4M3_MAX * E2M1_MAX)).clamp(min=_SMALLEST_GLOBAL))


def _e2m1_codes(ratios: Tensor) -> Tensor:
    """Return the nearest e2m1 codes, ties to even, of the same shape, uint8."""
    magnitude = ratios.abs()
    codes = torch.zeros_like(magnitude, dtype=torch.uint8)
    for step, midpoint in enumerate(_MIDPOINTS):
        codes += magnitude >= midpoint if step % 2 else magnitude > midpoint
    return codes | torch.signbit(ratios).to(torch.uint8) * _SIGN_BIT
