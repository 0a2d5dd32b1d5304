"""The kernels of `experts_nvfp4`; `triton_impl` launches them and says what they are for.

A *tile* is a tile of weights in memory, or up to BLOCK_TOKENS pairs (token, slot) of one expert; a *piece* is
BLOCK_ROWS rows of a product for one tile of pairs.
"""

from __future__ import annotations

import triton
import triton.language as tl

from slipstream.kernels.moe.experts_nvfp4.layout import INTERLEAVE
from slipstream.kernels.moe.experts_nvfp4.triton_parts import (
    CODE_LANES,
    CODES_PER_TILE,
    FIRST_SCALE,
    UNIT,
    WORDS_PER_TILE,
    tile_weights,
)
from slipstream.kernels.moe.swiglu_oai.triton_impl import gated

_TURN = tl.constexpr(INTERLEAVE)


@triton.jit(do_not_specialize=["num_pairs", "num_counters"])
def lists_kernel(
    ids_ptr,
    order_ptr,
    tiles_ptr,
    counters_ptr,
    num_pairs,
    num_counters,
    BLOCK_EXPERTS: tl.constexpr,
    BLOCK_TOKENS: tl.constexpr,
    BLOCK: tl.constexpr,
    CHAINED: tl.constexpr,
):
    """Write one expert's pairs in order and its tiles of tokens; all experts together clear the counters."""
    if CHAINED:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    own = tl.program_id(0)
    lanes = tl.arange(0, BLOCK)
    expert = tl.arange(0, BLOCK_EXPERTS)
    counts = tl.zeros((BLOCK_EXPERTS,), tl.int32)
    for start in range(0, num_pairs, BLOCK):
        ids = tl.load(ids_ptr + start + lanes, mask=start + lanes < num_pairs, other=-1).to(tl.int32)
        counts += tl.histogram(ids, BLOCK_EXPERTS, mask=ids >= 0)
    tiles = (counts + BLOCK_TOKENS - 1) // BLOCK_TOKENS
    place = tl.sum(tl.where(expert < own, counts, 0), 0)
    first_tile = tl.sum(tl.where(expert < own, tiles, 0), 0)
    count = tl.sum(tl.where(expert == own, counts, 0), 0)
    if own == 0:
        tl.store(tiles_ptr, tl.sum(tiles, 0))
    for start in range(0, count, BLOCK_TOKENS):
        row = tiles_ptr + 4 * (1 + first_tile + start // BLOCK_TOKENS)
        tl.store(row, own)
        tl.store(row + 1, place + start)
        tl.store(row + 2, tl.minimum(count - start, BLOCK_TOKENS))
    for start in range(own * BLOCK, num_counters, tl.num_programs(0) * BLOCK):
        tl.store(counters_ptr + start + lanes, tl.zeros((BLOCK,), tl.int32), mask=start + lanes < num_counters)
    if count > 0:
        for start in range(0, num_pairs, BLOCK):
            ids = tl.load(ids_ptr + start + lanes, mask=start + lanes < num_pairs, other=-1)
            is_own = ids == own
            rank = tl.cumsum(is_own.to(tl.int32), 0) - 1
            tl.store(order_ptr + place + rank, start + lanes, mask=is_own)
            place += tl.sum(is_own.to(tl.int32), 0)


@triton.jit
def read_tile(codes, scales, step):
    """Return code words A and B and the scale words of a tile, `step` tiles on."""
    a = tl.load(codes + step * CODES_PER_TILE, eviction_policy="evict_first")
    b = tl.load(codes + step * CODES_PER_TILE + CODE_LANES, eviction_policy="evict_first")
    return a, b, tl.load(scales + step * WORDS_PER_TILE)


@triton.jit
def tile_pointers(w_ptr, tile, part, BLOCK_ROWS: tl.constexpr):
    """Return pointers to the codes and scales of some rows of a tile, a line for each thread of a warp group."""
    thread = part * (2 * BLOCK_ROWS) + tl.arange(0, 2 * BLOCK_ROWS)
    start = w_ptr + tile * WORDS_PER_TILE
    codes = start.to(tl.pointer_type(tl.int16)) + thread[:, None] * 8 + tl.arange(0, 8)[None, :]
    # Four threads share a row, and with it the scales.
    return codes, start + FIRST_SCALE + thread[:, None] // 4 * 4 + tl.arange(0, 4)[None, :]


@triton.jit
def add_products(
    total,
    codes,
    scales,
    inputs,
    is_row,
    FIRST: tl.constexpr,
    LAST: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    STAGES: tl.constexpr,
    FAST: tl.constexpr,
):
    """Return the sum with the products of tiles FIRST .. LAST along the columns added to it."""
    for step in tl.range(FIRST, LAST, num_stages=STAGES):
        a, b, s = read_tile(codes, scales, step)
        x = tl.load(inputs + step * 128, mask=is_row[None, :], other=0.0)
        total = tl.dot(tile_weights(a, b, s, BLOCK_ROWS, FAST), x, total)
    return total


@triton.jit
def read_active(inputs, is_row, step: tl.constexpr):
    """Return 128 columns of activations that other thread blocks wrote; past the cache of this multiprocessor."""
    return tl.load(inputs + step * 128, mask=is_row[None, :], other=0.0, cache_modifier=".cg")


@triton.jit
def activate(
    partial_ptr,
    active_ptr,
    factor,
    first,
    num_rows,
    column_tile,
    num_pairs,
    alpha,
    limit,
    WIDTH: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_TOKENS: tl.constexpr,
    SPLIT: tl.constexpr,
):
    """Add the split sums of one piece of gate and up in their order and write its activations."""
    row = tl.arange(0, BLOCK_TOKENS)
    column = tl.arange(0, BLOCK_ROWS // 2)
    is_row = (row < num_rows)[:, None]
    gate_column = column_tile * BLOCK_ROWS + column // _TURN * (2 * _TURN) + column % _TURN
    place = (first + row).to(tl.int64)[:, None] * (2 * WIDTH) + gate_column[None, :]
    gate = tl.zeros((BLOCK_TOKENS, BLOCK_ROWS // 2), tl.float32)
    up = tl.zeros((BLOCK_TOKENS, BLOCK_ROWS // 2), tl.float32)
    for part in tl.static_range(SPLIT):
        source = partial_ptr + part * num_pairs.to(tl.int64) * (2 * WIDTH) + place
        gate += tl.load(source, mask=is_row, other=0.0, cache_modifier=".cg")
        up += tl.load(source + _TURN, mask=is_row, other=0.0, cache_modifier=".cg")
    result = gated(gate * factor, up * factor, alpha, limit)
    place = (first + row).to(tl.int64)[:, None] * WIDTH + (column_tile * (BLOCK_ROWS // 2) + column)[None, :]
    tl.store(active_ptr + place, result.to(active_ptr.dtype.element_ty), mask=is_row)


@triton.jit(do_not_specialize=["num_pairs", "max_tiles"])
def feed_forward_kernel(
    x_ptr,
    w13_ptr,
    w13_scale_ptr,
    w2_ptr,
    w2_scale_ptr,
    order_ptr,
    tiles_ptr,
    counters_ptr,
    partial_ptr,
    active_ptr,
    by_pair_ptr,
    x_stride,
    num_pairs,
    max_tiles,
    alpha,
    limit,
    TOPK: tl.constexpr,
    HIDDEN: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_TOKENS: tl.constexpr,
    SPLIT: tl.constexpr,
    STAGES: tl.constexpr,
    PRELOAD: tl.constexpr,
    CHAINED: tl.constexpr,
    FAST: tl.constexpr,
):
    """Compute every chosen expert on its tokens: [num_pairs, HIDDEN] float32, before the weights of the slots."""
    if CHAINED:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    program, num_programs = tl.program_id(0), tl.num_programs(0)
    PARTS: tl.constexpr = 128 // BLOCK_ROWS
    PIECES: tl.constexpr = 2 * WIDTH // BLOCK_ROWS
    STEPS: tl.constexpr = HIDDEN // 128 // SPLIT
    row = tl.arange(0, BLOCK_TOKENS)
    weight_row = tl.arange(0, BLOCK_ROWS)
    column = tl.arange(0, 128)
    num_first = tl.load(tiles_ptr) * (PIECES * SPLIT)
    for item in range(program, num_first, num_programs):
        tile, piece, part = item // (PIECES * SPLIT), item // SPLIT % PIECES, item % SPLIT
        expert = tl.load(tiles_ptr + 4 + 4 * tile).to(tl.int64)
        first = tl.load(tiles_ptr + 5 + 4 * tile)
        num_rows = tl.load(tiles_ptr + 6 + 4 * tile)
        is_row = row < num_rows
        token = (tl.load(order_ptr + first + row, mask=is_row, other=0) // TOPK).to(tl.int64)
        weight_tile = (expert * (2 * WIDTH // 128) + piece // PARTS) * (HIDDEN // 128) + part * STEPS
        codes, scales = tile_pointers(w13_ptr, weight_tile, piece % PARTS, BLOCK_ROWS)
        inputs = x_ptr + token[None, :] * x_stride + part * (STEPS * 128) + column[:, None]
        total = tl.zeros((BLOCK_ROWS, BLOCK_TOKENS), tl.float32)
        total = add_products(total, codes, scales, inputs, is_row, 0, STEPS, BLOCK_ROWS, STAGES, FAST)
        place = (part * num_pairs + first + row).to(tl.int64)[None, :] * (2 * WIDTH)
        place += piece * BLOCK_ROWS + weight_row[:, None]
        tl.store(partial_ptr + place, total, mask=is_row[None, :])
        # INVARIANT: every thread's stores come before the count that announces them.
        tl.debug_barrier()
        is_last = True
        if SPLIT > 1:
            is_last = tl.atomic_add(counters_ptr + max_tiles + tile * PIECES + piece, 1, sem="acq_rel") == SPLIT - 1
        if is_last:
            factor = tl.load(w13_scale_ptr + expert) * UNIT
            activate(
                partial_ptr,
                active_ptr,
                factor,
                first,
                num_rows,
                piece,
                num_pairs,
                alpha,
                limit,
                WIDTH,
                BLOCK_ROWS,
                BLOCK_TOKENS,
                SPLIT,
            )
            tl.debug_barrier()
            tl.atomic_add(counters_ptr + tile, 1, sem="release")
    num_second = tl.load(tiles_ptr) * (HIDDEN // BLOCK_ROWS)
    # Blocks that had a piece less of the first product are the first to take one of the second.
    for item in range((program + num_programs - num_first % num_programs) % num_programs, num_second, num_programs):
        tile, piece = item // (HIDDEN // BLOCK_ROWS), item % (HIDDEN // BLOCK_ROWS)
        expert = tl.load(tiles_ptr + 4 + 4 * tile).to(tl.int64)
        first = tl.load(tiles_ptr + 5 + 4 * tile)
        num_rows = tl.load(tiles_ptr + 6 + 4 * tile)
        is_row = row < num_rows
        weight_tile = (expert * (HIDDEN // 128) + piece // PARTS) * (WIDTH // 128)
        codes, scales = tile_pointers(w2_ptr, weight_tile, piece % PARTS, BLOCK_ROWS)
        if PRELOAD > 0:
            a0, b0, s0 = read_tile(codes, scales, 0)
        if PRELOAD > 1:
            a1, b1, s1 = read_tile(codes, scales, 1)
        if PRELOAD > 2:
            a2, b2, s2 = read_tile(codes, scales, 2)
        factor = tl.load(w2_scale_ptr + expert) * UNIT
        pair = tl.load(order_ptr + first + row, mask=is_row, other=0).to(tl.int64)
        num_ready = tl.atomic_add(counters_ptr + tile, 0, sem="acquire")
        while num_ready < PIECES:
            num_ready = tl.atomic_add(counters_ptr + tile, 0, sem="acquire")
        inputs = active_ptr + (first + row).to(tl.int64)[None, :] * WIDTH + column[:, None]
        total = tl.zeros((BLOCK_ROWS, BLOCK_TOKENS), tl.float32)
        if PRELOAD > 0:
            x0 = read_active(inputs, is_row, 0)
        if PRELOAD > 1:
            x1 = read_active(inputs, is_row, 1)
        if PRELOAD > 0:
            total = tl.dot(tile_weights(a0, b0, s0, BLOCK_ROWS, FAST), x0, total)
        if PRELOAD > 2:
            x2 = read_active(inputs, is_row, 2)
        if PRELOAD > 1:
            total = tl.dot(tile_weights(a1, b1, s1, BLOCK_ROWS, FAST), x1, total)
        if PRELOAD > 2:
            total = tl.dot(tile_weights(a2, b2, s2, BLOCK_ROWS, FAST), x2, total)
        if PRELOAD < WIDTH // 128:
            total = add_products(total, codes, scales, inputs, is_row, PRELOAD, WIDTH // 128, BLOCK_ROWS, STAGES, FAST)
        place = pair[None, :] * HIDDEN + piece * BLOCK_ROWS + weight_row[:, None]
        tl.store(by_pair_ptr + place, total * factor, mask=is_row[None, :])


@triton.jit
def sum_slots_kernel(
    by_pair_ptr,
    ids_ptr,
    weights_ptr,
    out_ptr,
    HIDDEN: tl.constexpr,
    TOPK: tl.constexpr,
    BLOCK: tl.constexpr,
    CHAINED: tl.constexpr,
):
    """Write one token's weighted sum over its slots, one after the other."""
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_inside = column < HIDDEN
    if CHAINED:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    total = tl.zeros((BLOCK,), tl.float32)
    for slot in tl.static_range(TOPK):
        pair = token * TOPK + slot
        # What padding would have produced was never written.
        is_real = tl.load(ids_ptr + pair) >= 0
        value = tl.load(by_pair_ptr + pair * HIDDEN + column, mask=is_inside & is_real, other=0.0)
        total += value * tl.load(weights_ptr + pair)
    tl.store(out_ptr + token * HIDDEN + column, total.to(out_ptr.dtype.element_ty), mask=is_inside)
