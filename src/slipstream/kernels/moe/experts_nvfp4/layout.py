"""The run-time layout of an NVFP4 matrix: tiles of 128 rows by 128 columns, 9,216 consecutive bytes each.

A tile is what one thread block reads in one step of its loop: code words A, code words B, two scale words per row.
A code word holds two neighbouring columns c, c + 1 of eight groups of 16 columns, so that one shift and one mask give
both as the top bits of two bfloat16 numbers; groups 0..2 lie in A, 3..5 in B, 6 and 7 in what both leave over. A
scale is kept as 5 bits of exponent and 3 of mantissa, the same way: subnormal e4m3 scales are normal numbers here.
Words are in the order in which the threads of a warp group hold the rows of a product, 16 bytes for each at a time.
Not here: reading checkpoints.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from slipstream.base.errors import CheckpointError
from slipstream.kernels.faults import shape_fault

if TYPE_CHECKING:
    from jaxtyping import Float32, Int32, UInt8

TILE = 128
"""Rows and columns of a tile."""
GROUP = 16
"""Columns that share a scale."""
TILE_WORDS = 2 * TILE * GROUP // 2 + 2 * TILE
"""int32 words of a tile: code words A and B, then scale words of groups 0..3 and 4..7."""
INTERLEAVE = 32
"""Rows of the gate that lie together, followed by as many of up, in the first matrix of an expert."""
ROTATIONS = (0, 4, 10, 0, 4, 10, 6, 12)
"""By how much a word is rotated left for each group; of groups 6 and 7, the word that joins A and B."""
JOINED_FROM_A = 0x0603_0603
"""Bits of the joined word that are A's; the others are B's, shifted left by two."""
NO_SCALE = 0
"""Scale field of a group of zeros."""
_SIGN, _MAGNITUDE = 15, 6
_SUBNORMAL_FIELDS = (NO_SCALE, 1 << 3, 2 << 3, 2 << 3 | 4, 3 << 3, 3 << 3 | 2, 3 << 3 | 4, 3 << 3 | 6)
_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


@functools.cache
def code_places() -> tuple[tuple[int, int, int, int, int], ...]:
    """Return (group, column of the pair, bit of the code, word, bit of the word) of all 64 bits of a word pair."""
    places: list[tuple[int, int, int, int, int]] = []
    for group, rotation in enumerate(ROTATIONS):
        for column in range(2):
            for bit in range(4):
                wanted = 16 * column + (_SIGN if bit == 3 else _MAGNITUDE + bit)
                place = (wanted - rotation) % 32
                word = group // 3
                if group >= 6:
                    word = 0 if JOINED_FROM_A >> place & 1 else 1
                    place -= 2 * word
                places.append((group, column, bit, word, place))
    return tuple(places)


@functools.cache
def scale_places() -> tuple[tuple[int, int, int], ...]:
    """Return (group of four, bit of the scale field, bit of the scale word)."""
    return tuple(
        (group, bit, (4 + bit + 16 * (group % 2) - 8 * (group // 2)) % 32) for group in range(4) for bit in range(8)
    )


def pack(codes: UInt8[Tensor, "num_experts rows half_columns"], scales: Tensor) -> Int32[Tensor, "..."]:
    """Return matrices in the run-time layout.

    Args:
        codes: [num_experts, rows, columns / 2] uint8; two e2m1 codes a byte, the even column in the low half.
        scales: [num_experts, rows, columns / 16] float8_e4m3fn.

    Returns:
        [num_experts, rows / 128, columns / 128, 2304] int32.

    Raises:
        ShapeError: rows or columns are not multiples of 128, or an axis or a dtype disagrees.
        CheckpointError: a scale is negative or no number.
    """
    num_experts, rows, half_columns = codes.shape if codes.dim() == 3 else (0, 1, 1)
    if codes.dtype != torch.uint8 or rows % TILE or half_columns % (TILE // 2):
        raise shape_fault("pack", "codes", codes, f"[num_experts, rows, columns / 2] uint8, both multiples of {TILE}")
    if scales.shape != (num_experts, rows, half_columns * 2 // GROUP) or scales.dtype != torch.float8_e4m3fn:
        wanted = f"[{num_experts}, {rows}, {half_columns * 2 // GROUP}] float8_e4m3fn"
        raise shape_fault("pack", "scales", scales, wanted)
    shape = (num_experts, rows // TILE, TILE, half_columns * 2 // TILE)
    fields = _scale_fields(scales.view(torch.uint8)).view(*shape, 8)
    nibbles = torch.stack((codes & 15, codes >> 4), dim=-1).view(*shape, 8, 8, 2).int()
    # A zero scale has no field of its own: its group is kept as zeros, which is what it means.
    nibbles = torch.where((fields == NO_SCALE)[..., None, None], 0, nibbles)
    words = torch.zeros(2, *shape, 8, dtype=torch.int32, device=codes.device)
    for group, column, bit, word, place in code_places():
        words[word] |= (nibbles[..., group, :, column] >> bit & 1) << place
    pairs = torch.zeros(2, *shape, dtype=torch.int32, device=codes.device)
    for group, bit, place in scale_places():
        for half in range(2):
            pairs[half] |= (fields[..., 4 * half + group] >> bit & 1) << place
    # A thread's own words lie together: of rows g and g + 8 of its warp, pairs q and q + 4.
    words = words.view(2, *shape[:2], 2, 4, 2, 8, shape[3], 2, 4)
    words = words.permute(1, 2, 7, 0, 3, 4, 6, 9, 8, 5).flatten(3)
    pairs = pairs.view(2, *shape[:2], 2, 4, 2, 8, shape[3])
    pairs = pairs.permute(1, 2, 7, 3, 4, 6, 5, 0).flatten(3)
    return torch.cat((words, pairs), dim=3).contiguous()


def unpack(packed: Int32[Tensor, "..."]) -> tuple[UInt8[Tensor, "..."], Tensor]:
    """Return codes and scales as a checkpoint has them: the inverse of `pack`, but groups of scale zero are zeros.

    Args:
        packed: [num_experts, rows / 128, columns / 128, 2304] int32.
    """
    num_experts, row_tiles, column_tiles, _ = packed.shape
    words = packed[..., : -2 * TILE].view(num_experts, row_tiles, column_tiles, 2, 2, 4, 8, 4, 2, 2)
    words = words.permute(0, 1, 2, 3, 4, 5, 9, 6, 8, 7).reshape(num_experts, row_tiles, column_tiles, 2, TILE, 8)
    pairs = packed[..., -2 * TILE :].view(num_experts, row_tiles, column_tiles, 2, 4, 8, 2, 2)
    pairs = pairs.permute(0, 1, 2, 7, 3, 4, 6, 5).reshape(num_experts, row_tiles, column_tiles, 2, TILE)
    nibbles = torch.zeros(num_experts, row_tiles, TILE, column_tiles, 8, 8, 2, dtype=torch.uint8, device=packed.device)
    for group, column, bit, word, place in code_places():
        one = (words[..., word, :, :] >> place & 1) << bit
        nibbles[..., group, :, column] |= one.transpose(2, 3).to(torch.uint8)
    fields = torch.zeros(num_experts, row_tiles, TILE, column_tiles, 8, dtype=torch.int32, device=packed.device)
    for group, bit, place in scale_places():
        for half in range(2):
            fields[..., 4 * half + group] |= ((pairs[..., half, :] >> place & 1) << bit).transpose(2, 3)
    rows = row_tiles * TILE
    codes = (nibbles[..., 0] | nibbles[..., 1] << 4).view(num_experts, rows, column_tiles * TILE // 2)
    scales = _scale_bytes(fields).view(num_experts, rows, column_tiles * TILE // GROUP)
    return codes, scales.view(torch.float8_e4m3fn)


def dequantise(packed: Int32[Tensor, "..."]) -> Float32[Tensor, "num_experts rows columns"]:
    """Return value * scale of every weight, exact in float32 and in bfloat16; the factor of the matrix is left out.

    Args:
        packed: [num_experts, rows / 128, columns / 128, 2304] int32.
    """
    codes, scales = unpack(packed)
    signed = torch.tensor([*_VALUES, *(-value for value in _VALUES)], device=packed.device)
    values = signed[torch.stack((codes & 15, codes >> 4), dim=-1).flatten(2).int()]
    return values * scales.float().repeat_interleave(GROUP, dim=2)


def interleave(gate: Tensor, up: Tensor) -> Tensor:
    """Return the rows of the gate and of up in turns of 32, the order of an expert's first matrix.

    Args:
        gate: [num_experts, intermediate_size, ...]; codes or scales.
        up: the same of the other half.

    Raises:
        ShapeError: intermediate_size is not a multiple of 128, or the two differ in shape.
    """
    if gate.shape != up.shape or gate.shape[1] % TILE:
        allowed = f"[num_experts, intermediate_size, ...] as up has it, intermediate_size a multiple of {TILE}"
        raise shape_fault("interleave", "gate", gate, allowed)
    turns = (gate.shape[0], gate.shape[1] // INTERLEAVE, INTERLEAVE, *gate.shape[2:])
    return torch.stack((gate.view(turns), up.view(turns)), dim=2).flatten(1, 3)


def separate(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return gate and up of rows in the order of `interleave`.

    Args:
        rows: [num_experts, 2 * intermediate_size, ...].
    """
    turns = rows.view(rows.shape[0], -1, 2, INTERLEAVE, *rows.shape[2:])
    return turns[:, :, 0].flatten(1, 2), turns[:, :, 1].flatten(1, 2)


def _scale_fields(scales: Tensor) -> Tensor:
    """Return 5 bits of exponent and 3 of mantissa of e4m3 bytes."""
    faulty = int((scales >= 0x7F).sum())
    if faulty:
        raise CheckpointError(
            f"{faulty} of {scales.numel()} NVFP4 scales are negative or no number; allowed are e4m3 values from 0 to "
            "448. Quantise the checkpoint again."
        )
    small = torch.tensor(_SUBNORMAL_FIELDS, dtype=torch.int32, device=scales.device)
    return torch.where(scales < 8, small[(scales & 7).int()], scales.int() + 24)


def _scale_bytes(fields: Tensor) -> Tensor:
    """Return the e4m3 bytes of scale fields."""
    by_field = torch.zeros(256, dtype=torch.uint8)
    by_field[torch.tensor(_SUBNORMAL_FIELDS)] = torch.arange(8, dtype=torch.uint8)
    by_field[32:151] = torch.arange(8, 127, dtype=torch.uint8)
    return by_field.to(fields.device)[fields]
