"""Weights of a run-time tile as bfloat16, in Triton: inline instructions on a GPU, plain operations interpreted.

A product's weights stay in registers, where the matrix instruction of a warp group takes them from. Both ways give the
same bits; what is left out of the weights is 2 ** -19, which the caller multiplies its sum by.
"""

from __future__ import annotations

import triton
import triton.language as tl

from slipstream.kernels.moe.experts_nvfp4.layout import GROUP, JOINED_FROM_A, ROTATIONS, TILE, TILE_WORDS

CODES_PER_TILE = tl.constexpr(2 * TILE_WORDS)
"""int16 lanes from one tile to the next."""
WORDS_PER_TILE = tl.constexpr(TILE_WORDS)
CODE_LANES = tl.constexpr(TILE * GROUP)
"""int16 lanes from words A of a tile to words B."""
FIRST_SCALE = tl.constexpr(TILE_WORDS - 2 * TILE)
UNIT = tl.constexpr(2.0**19)
"""What a sum of products with these weights must be multiplied by."""

_KEEP = 0x81C0_81C0
_FIRST_OUT, _A, _B, _FIRST_SCALE = 0, 8, 9, 10


def instructions() -> str:
    """Return the PTX of one pair of columns: 8 packed results from 2 code words and 4 pairs of scales.

    A scale pair holds two bfloat16 numbers, of an even group and the next; a pair of operands carries the same value
    twice, for two neighbouring columns. The joined word takes its bits of A and of B in one three-operand operation,
    whose table 0xE4 is (first and third) or (second and not third).
    """
    lines = [".reg .b32 word, joined, part, scale;", ".reg .b16 low, high;"]
    lines += [f"shl.b32 joined, ${_B}, 2;", f"lop3.b32 joined, ${_A}, joined, {JOINED_FROM_A:#010x}, 0xe4;"]
    for group, rotation in enumerate(ROTATIONS):
        word = (f"${_A}", f"${_B}", "joined")[group // 3]
        if rotation == 0:
            lines.append(f"and.b32 part, {word}, {_KEEP:#010x};")
        else:
            # A shift that loses nothing which is kept costs less than a rotation.
            shift = f"shl.b32 word, {word}, {rotation};"
            turn = f"shf.l.wrap.b32 word, {word}, {word}, {rotation};"
            lines += [shift if rotation <= 6 else turn, f"and.b32 part, word, {_KEEP:#010x};"]
        half = ("low", "high")[group % 2]
        lines.append(f"mov.b32 {{low, high}}, ${_FIRST_SCALE + 2 * (group // 2)};")
        lines += [f"mov.b32 scale, {{{half}, {half}}};", f"mul.rn.bf16x2 ${_FIRST_OUT + group}, part, scale;"]
    return "{\n" + "\n".join(lines) + "\n}"


_INSTRUCTIONS = tl.constexpr(instructions())
_OPERANDS = tl.constexpr(",".join(["=r"] * 8 + ["r"] * 10))
_KEEP_LANE = tl.constexpr(_KEEP - 2**32)
_FROM_A = tl.constexpr(JOINED_FROM_A)


@triton.jit
def turned(word, SHIFT: tl.constexpr):
    """Return a word rotated left."""
    return (word << SHIFT) | ((word >> (32 - SHIFT)) & ((1 << SHIFT) - 1))


@triton.jit
def turned_by_8(word, FAST: tl.constexpr):
    if FAST:
        return tl.inline_asm_elementwise("prmt.b32 $0, $1, $1, 0x2103;", "=r,r", [word], tl.int32, True, 1)
    return turned(word, 8)


@triton.jit
def scale_pair(word, FAST: tl.constexpr):
    """Return two scales of a word, times 2 ** 107, as a pair of bfloat16."""
    if FAST:
        # The table 0xEA is (first and second) or third; the compiler would make two operations of it.
        return tl.inline_asm_elementwise(
            "lop3.b32 $0, $1, 0x0FF00FF0, 0x70007000, 0xea;", "=r,r", [word], tl.int32, True, 1
        )
    return (word & 0x0FF00FF0) | 0x70007000


@triton.jit
def lane_words(lanes, BLOCK: tl.constexpr):
    """Return the 32-bit words of neighbouring lanes."""
    low, high = tl.split(lanes.reshape(BLOCK, 8, 2))
    return (low.to(tl.int32) & 0xFFFF) | (high.to(tl.int32) << 16)


@triton.jit
def plain_group(word, pair, BLOCK: tl.constexpr, ROTATION: tl.constexpr, HALF: tl.constexpr):
    """Return 16 columns of one group: what the inline instructions do to a pair of lanes."""
    part = (turned(word, ROTATION) if ROTATION else word) & _KEEP_LANE
    lanes = tl.join((part & 0xFFFF).to(tl.int16), ((part >> 16) & 0xFFFF).to(tl.int16)).reshape(BLOCK, 16)
    scale = ((pair >> (16 * HALF)) & 0xFFFF).to(tl.int16).to(tl.bfloat16, bitcast=True)
    return lanes.to(tl.bfloat16, bitcast=True) * scale


@triton.jit
def plain_groups(a, b, p0, p1, p2, p3, BLOCK: tl.constexpr):
    first, second = lane_words(a, BLOCK), lane_words(b, BLOCK)
    joined = (first & _FROM_A) | ((second << 2) & ~_FROM_A)
    return (
        plain_group(first, p0, BLOCK, 0, 0),
        plain_group(first, p0, BLOCK, 4, 1),
        plain_group(first, p1, BLOCK, 10, 0),
        plain_group(second, p1, BLOCK, 0, 1),
        plain_group(second, p2, BLOCK, 4, 0),
        plain_group(second, p2, BLOCK, 10, 1),
        plain_group(joined, p3, BLOCK, 6, 0),
        plain_group(joined, p3, BLOCK, 12, 1),
    )


@triton.jit
def fast_groups(a, b, p0, p1, p2, p3):
    return tl.inline_asm_elementwise(
        _INSTRUCTIONS, _OPERANDS, [a, b, p0, p1, p2, p3], dtype=(tl.bfloat16,) * 8, is_pure=True, pack=2
    )


@triton.jit
def rows_of(words, BLOCK: tl.constexpr):
    """Return [BLOCK, 16] lanes of code words that lie thread by thread; no value leaves its thread."""
    return words.reshape(BLOCK // 64, 4, 8, 4, 2, 2, 2).permute(0, 1, 5, 2, 4, 3, 6).reshape(BLOCK, 16)


@triton.jit
def over_columns(pair, BLOCK: tl.constexpr):
    """Return [BLOCK, 16] of what each of the four threads of a row holds."""
    return pair[:, None, :, None].broadcast_to(BLOCK, 2, 4, 2).reshape(BLOCK, 16)


@triton.jit
def tile_weights(a, b, scales, BLOCK: tl.constexpr, FAST: tl.constexpr):
    """Return [BLOCK, 128] bfloat16 weights of a tile, times 2 ** -19.

    Args:
        a: [2 * BLOCK, 8] int16; code words A, 8 lanes of each thread.
        b: [2 * BLOCK, 8] int16; code words B.
        scales: [2 * BLOCK, 4] int32; scale words, both of each of a thread's two rows.
        BLOCK: rows, 64 or 128.
        FAST: use inline instructions, which the interpreter cannot run.
    """
    low, high = tl.split(scales.reshape(BLOCK // 64, 4, 8, 4, 2, 2).permute(0, 1, 4, 2, 3, 5).reshape(BLOCK, 4, 2))
    p0 = over_columns(scale_pair(low, FAST), BLOCK)
    p1 = over_columns(scale_pair(turned_by_8(low, FAST), FAST), BLOCK)
    p2 = over_columns(scale_pair(high, FAST), BLOCK)
    p3 = over_columns(scale_pair(turned_by_8(high, FAST), FAST), BLOCK)
    if FAST:
        d0, d1, d2, d3, d4, d5, d6, d7 = fast_groups(rows_of(a, BLOCK), rows_of(b, BLOCK), p0, p1, p2, p3)
    else:
        d0, d1, d2, d3, d4, d5, d6, d7 = plain_groups(rows_of(a, BLOCK), rows_of(b, BLOCK), p0, p1, p2, p3, BLOCK)
    # Joined from the highest bit of the group down, and moved before the columns: again within each thread.
    even = tl.join(tl.join(d0, d4), tl.join(d2, d6))
    odd = tl.join(tl.join(d1, d5), tl.join(d3, d7))
    return tl.join(even, odd).permute(0, 2, 3, 4, 1).reshape(BLOCK, 128)
