"""`matmul_mxfp8` in Triton: a thread block holds 64 output rows of one split in registers and meets all rows of x.

The whole tile of weights is loaded, and made into bfloat16, before the wait for the preceding kernel: weights do not
depend on it, and a kernel this short is otherwise mostly the time to its first byte. Rows come in tiles of 16 whatever
their number, so that each is multiplied by the same instructions in the same order.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from slipstream.kernels.linear.matmul_mxfp8.layout import CHUNK
from slipstream.kernels.linear.matmul_mxfp8.plan import max_registers, units_per_split

_ROWS = 16


@triton.jit
def weights_of(words, scale_words, MAY_MOVE: tl.constexpr, IS_PACKED: tl.constexpr):
    """Return the two halves of a chunk's weights as [64, 128] bfloat16: first and second groups of its four units.

    Args:
        words: [8192] int16.
        scale_words: [64] int64.
        MAY_MOVE: whether the compiler may do this earlier than it is written, and keep it over a loop.
        IS_PACKED: two weights an instruction; what an interpreter does not know.
    """
    # From the slowest axis to the fastest, as the layout has them: unit, k4, rows 5:4, rows 2:0, k2:1, k3, row 3, k0.
    words = tl.reshape(words, (4, 2, 4, 8, 4, 2, 2, 2))
    scale_words = tl.permute(tl.reshape(scale_words, (1, 1, 4, 2, 8, 1, 1, 1)), (0, 1, 2, 4, 5, 6, 3, 7))
    unit = tl.reshape(tl.arange(0, 4), (4, 1, 1, 1, 1, 1, 1, 1))
    scales = (scale_words >> (unit * 16)).to(tl.int32)
    # A biased exponent of a scale plus 120 is the exponent of a bfloat16 that also undoes the 2^-120.
    first_scale = (((scales << 7) & 0x7F80) + 15360).to(tl.int16)
    second_scale = (((scales >> 1) & 0x7F80) + 15360).to(tl.int16)
    if IS_PACKED:
        first_scale = tl.broadcast_to(first_scale, (4, 2, 4, 8, 4, 2, 2, 2))
        second_scale = tl.broadcast_to(second_scale, (4, 2, 4, 8, 4, 2, 2, 2))
        first, second = tl.inline_asm_elementwise(
            """{
            .reg .b32 t, u;
            and.b32 t, $2, 0x87F087F0;
            mul.rn.bf16x2 $0, t, $3;
            shl.b32 t, $2, 4;
            and.b32 t, t, 0x80F080F0;
            shr.u32 u, $2, 4;
            and.b32 u, u, 0x07000700;
            or.b32 t, t, u;
            mul.rn.bf16x2 $1, t, $4;
            }""",
            "=r,=r,r,r,r",
            [words, first_scale, second_scale],
            dtype=(tl.bfloat16, tl.bfloat16),
            is_pure=MAY_MOVE,
            pack=2,
        )
    else:
        low = (words & -30736).to(tl.int16)
        high = (((words << 4) & -32528) | ((words >> 4) & 0x0700)).to(tl.int16)
        first = low.to(tl.bfloat16, bitcast=True) * first_scale.to(tl.bfloat16, bitcast=True)
        second = high.to(tl.bfloat16, bitcast=True) * second_scale.to(tl.bfloat16, bitcast=True)
    first = tl.reshape(tl.permute(first, (2, 6, 3, 0, 1, 5, 4, 7)), (64, 128))
    second = tl.reshape(tl.permute(second, (2, 6, 3, 0, 1, 5, 4, 7)), (64, 128))
    return first, second


@triton.jit(do_not_specialize=["num_tokens"])
def matmul_mxfp8_kernel(
    x_ptr,
    words_ptr,
    scales_ptr,
    parts_ptr,
    num_tokens,
    x_stride,
    OUT_FEATURES: tl.constexpr,
    IN_UNITS: tl.constexpr,
    CHUNKS: tl.constexpr,
    ROWS: tl.constexpr,
    IS_DEPENDENT: tl.constexpr,
    IS_EARLY: tl.constexpr,
    IS_PACKED: tl.constexpr,
):
    if IS_DEPENDENT:
        tl.extra.cuda.gdc_launch_dependents()
    out_unit = tl.program_id(0)
    split = tl.program_id(1)
    IN_CHUNKS: tl.constexpr = (IN_UNITS + 3) // 4
    lanes = tl.arange(0, 8192)
    rows = tl.arange(0, 64)
    first_chunk = split * CHUNKS
    loaded = ()
    # HAZARD: before the wait, so nothing here may come from the step's own kernels.
    for i in tl.static_range(CHUNKS):
        chunk = first_chunk + i
        word_place = words_ptr + (out_unit * IN_UNITS + chunk * 4).to(tl.int64) * 2048 + lanes
        scale_place = scales_ptr + (out_unit * IN_CHUNKS + chunk).to(tl.int64) * 64 + rows
        if IN_UNITS % (4 * CHUNKS) == 0:
            scale_words = tl.load(scale_place, eviction_policy="evict_first")
            words = tl.load(word_place, eviction_policy="evict_first")
        else:
            is_scale = rows < (IN_CHUNKS - chunk) * 64
            is_word = lanes < (IN_UNITS - chunk * 4) * 2048
            scale_words = tl.load(scale_place, mask=is_scale, other=0, eviction_policy="evict_first")
            words = tl.load(word_place, mask=is_word, other=0, eviction_policy="evict_first")
        if IS_EARLY:
            loaded += weights_of(words, scale_words, True, IS_PACKED)
        else:
            loaded += (words, scale_words)
    if IS_DEPENDENT:
        tl.extra.cuda.gdc_wait()
    columns = tl.arange(0, 128)
    outputs = out_unit * 64 + rows
    for tile in range(0, num_tokens, ROWS):
        row = (tile + tl.arange(0, ROWS)).to(tl.int64)
        is_row = row < num_tokens
        # Every load before the first product: each one alone would be a trip to the cache.
        values = ()
        for i in tl.static_range(CHUNKS):
            place = (first_chunk + i) * 256 + columns // 32 * 64 + columns % 32
            is_value = is_row[None, :]
            if IN_UNITS % (4 * CHUNKS) != 0:
                is_value = is_value & (place < IN_UNITS * 64)[:, None]
            x_place = x_ptr + row[None, :] * x_stride + place[:, None]
            first_x = tl.load(x_place, mask=is_value, other=0.0)
            second_x = tl.load(x_place + 32, mask=is_value, other=0.0)
            values += (first_x, second_x)
        total = tl.zeros((64, ROWS), tl.float32)
        for i in tl.static_range(CHUNKS):
            if IS_EARLY:
                first, second = loaded[2 * i], loaded[2 * i + 1]
            else:
                first, second = weights_of(loaded[2 * i], loaded[2 * i + 1], False, IS_PACKED)
            total = tl.dot(first, values[2 * i], total)
            total = tl.dot(second, values[2 * i + 1], total)
        part = (split * num_tokens + row[None, :]) * OUT_FEATURES + outputs[:, None]
        tl.store(parts_ptr + part, total, mask=is_row[None, :] & (outputs < OUT_FEATURES)[:, None])


def launch(
    x: Tensor,
    words: Tensor,
    scale_words: Tensor,
    out_features: int,
    units: int,
    *,
    is_dependent: bool = True,
    is_early: bool = False,
    max_registers: int | None = None,
) -> Tensor:
    """Return the partial sums with a split of `units`; what benchmarks vary.

    Args:
        x: as in the contract, and so on up to out_features.
        words: as in the contract.
        scale_words: as in the contract.
        out_features: as in the contract.
        units: inner units of a split, a multiple of four.
        is_dependent: launched before the kernel before it has ended (programmatic dependent launch).
        is_early: weights are made into bfloat16 before the wait, not after it.
        max_registers: of a thread; fewer let more thread blocks wait side by side.
    """
    x = x if x.stride(1) == 1 else x.contiguous()
    assert words.is_contiguous() and scale_words.is_contiguous()
    num_tokens, (out_units, in_units) = x.shape[0], words.shape[:2]
    splits = triton.cdiv(in_units, units)
    parts = torch.empty((splits, num_tokens, out_features), dtype=torch.float32, device=x.device)
    is_device = x.device.type != "cpu"
    if num_tokens:
        matmul_mxfp8_kernel[(out_units, splits)](
            x,
            words,
            scale_words,
            parts,
            num_tokens,
            x.stride(0),
            OUT_FEATURES=out_features,
            IN_UNITS=in_units,
            CHUNKS=units // CHUNK,
            ROWS=_ROWS,
            IS_DEPENDENT=is_dependent and is_device,
            IS_EARLY=is_early,
            IS_PACKED=is_device,
            num_warps=4,
            num_stages=1,
            maxnreg=max_registers,
            launch_pdl=is_dependent and is_device,
        )
    return parts


def matmul_mxfp8(x: Tensor, words: Tensor, scale_words: Tensor, out_features: int) -> Tensor:
    """See the contract."""
    units = units_per_split(words.shape[0], words.shape[1])
    return launch(x, words, scale_words, out_features, units, max_registers=max_registers(units))
