"""`experts` in Triton: pairs (token, slot) sorted by expert, two grouped products, a sum in order of the slots.

Nothing is read on the host: the grid is the most tiles that any routing of so many tokens can need, and a tile past
the last one ends at once. A row of a product depends on its token and expert alone, so batches do not change it.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from slipstream.kernels.moe.swiglu_oai.triton_impl import gated

_DECODE_PAIRS = 1024
_SCAN = 1024


@triton.jit(do_not_specialize=["num_pairs"])
def sort_pairs_kernel(ids_ptr, order_ptr, counts_ptr, num_pairs, BLOCK: tl.constexpr):
    """Write, for one expert, how many pairs chose it and where they stand in the order of experts."""
    expert = tl.program_id(0)
    lanes = tl.arange(0, BLOCK)
    num_before = tl.zeros((), tl.int32)
    num_own = tl.zeros((), tl.int32)
    for start in range(0, num_pairs, BLOCK):
        ids = tl.load(ids_ptr + start + lanes, mask=start + lanes < num_pairs, other=-1)
        num_before += tl.sum(((ids >= 0) & (ids < expert)).to(tl.int32), 0)
        num_own += tl.sum((ids == expert).to(tl.int32), 0)
    tl.store(counts_ptr + expert, num_own)
    place = num_before
    for start in range(0, num_pairs, BLOCK):
        ids = tl.load(ids_ptr + start + lanes, mask=start + lanes < num_pairs, other=-1)
        is_own = ids == expert
        rank = tl.cumsum(is_own.to(tl.int32), 0) - 1
        tl.store(order_ptr + place + rank, start + lanes, mask=is_own)
        place += tl.sum(is_own.to(tl.int32), 0)


@triton.jit
def find_tile(counts_ptr, tile, NUM_EXPERTS: tl.constexpr, BLOCK_EXPERTS: tl.constexpr, BLOCK_ROWS: tl.constexpr):
    """Return (expert, first sorted pair, pairs) of a tile; no pairs when it lies past the last tile."""
    expert = tl.arange(0, BLOCK_EXPERTS)
    counts = tl.load(counts_ptr + expert, mask=expert < NUM_EXPERTS, other=0)
    tiles = (counts + BLOCK_ROWS - 1) // BLOCK_ROWS
    end = tl.cumsum(tiles, 0)
    own = tl.sum((end <= tile).to(tl.int32), 0)
    is_own = expert == own
    count = tl.sum(tl.where(is_own, counts, 0), 0)
    first_pair = tl.sum(tl.where(expert < own, counts, 0), 0)
    skipped = (tile - tl.sum(tl.where(is_own, end - tiles, 0), 0)) * BLOCK_ROWS
    return own, first_pair + skipped, tl.minimum(count - skipped, BLOCK_ROWS)


@triton.jit
def gate_up_kernel(
    x_ptr,
    order_ptr,
    counts_ptr,
    w13_ptr,
    active_ptr,
    x_stride,
    hidden_size,
    width,
    alpha,
    limit,
    TOPK: tl.constexpr,
    NUM_EXPERTS: tl.constexpr,
    BLOCK_EXPERTS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    expert, first, num_rows = find_tile(counts_ptr, tl.program_id(0), NUM_EXPERTS, BLOCK_EXPERTS, BLOCK_ROWS)
    if num_rows <= 0:
        return
    rows = tl.arange(0, BLOCK_ROWS)
    is_row = rows < num_rows
    pair = tl.load(order_ptr + first + rows, mask=is_row, other=0)
    token = (pair // TOPK).to(tl.int64)
    column = tl.program_id(1) * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)
    is_column = column < width
    lanes = tl.arange(0, BLOCK_K)
    weights = w13_ptr + expert.to(tl.int64) * 2 * width * hidden_size
    gate = tl.zeros((BLOCK_ROWS, BLOCK_COLUMNS), tl.float32)
    up = tl.zeros((BLOCK_ROWS, BLOCK_COLUMNS), tl.float32)
    for start in range(0, hidden_size, BLOCK_K):
        k = start + lanes
        is_k = k < hidden_size
        x = tl.load(x_ptr + token[:, None] * x_stride + k[None, :], mask=is_row[:, None] & is_k[None, :], other=0.0)
        place = column[None, :].to(tl.int64) * hidden_size + k[:, None]
        is_weight = is_column[None, :] & is_k[:, None]
        gate_weight = tl.load(weights + place, mask=is_weight, other=0.0)
        up_weight = tl.load(weights + width.to(tl.int64) * hidden_size + place, mask=is_weight, other=0.0)
        gate = tl.dot(x, gate_weight, gate, input_precision="ieee")
        up = tl.dot(x, up_weight, up, input_precision="ieee")
    dtype = active_ptr.dtype.element_ty
    result = gated(gate.to(dtype).to(tl.float32), up.to(dtype).to(tl.float32), alpha, limit)
    place = (first + rows).to(tl.int64)[:, None] * width + column[None, :]
    tl.store(active_ptr + place, result.to(dtype), mask=is_row[:, None] & is_column[None, :])


@triton.jit
def down_kernel(
    active_ptr,
    order_ptr,
    counts_ptr,
    w2_ptr,
    by_pair_ptr,
    hidden_size,
    width,
    NUM_EXPERTS: tl.constexpr,
    BLOCK_EXPERTS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    expert, first, num_rows = find_tile(counts_ptr, tl.program_id(0), NUM_EXPERTS, BLOCK_EXPERTS, BLOCK_ROWS)
    if num_rows <= 0:
        return
    rows = tl.arange(0, BLOCK_ROWS)
    is_row = rows < num_rows
    pair = tl.load(order_ptr + first + rows, mask=is_row, other=0).to(tl.int64)
    column = tl.program_id(1) * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)
    is_column = column < hidden_size
    lanes = tl.arange(0, BLOCK_K)
    weights = w2_ptr + expert.to(tl.int64) * hidden_size * width
    total = tl.zeros((BLOCK_ROWS, BLOCK_COLUMNS), tl.float32)
    for start in range(0, width, BLOCK_K):
        k = start + lanes
        is_k = k < width
        place = (first + rows).to(tl.int64)[:, None] * width + k[None, :]
        active = tl.load(active_ptr + place, mask=is_row[:, None] & is_k[None, :], other=0.0)
        weight_place = column[None, :].to(tl.int64) * width + k[:, None]
        weight = tl.load(weights + weight_place, mask=is_column[None, :] & is_k[:, None], other=0.0)
        total = tl.dot(active, weight, total, input_precision="ieee")
    place = pair[:, None] * hidden_size + column[None, :]
    tl.store(by_pair_ptr + place, total.to(by_pair_ptr.dtype.element_ty), mask=is_row[:, None] & is_column[None, :])


@triton.jit
def combine_kernel(by_pair_ptr, ids_ptr, weights_ptr, out_ptr, hidden_size, TOPK: tl.constexpr, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_inside = column < hidden_size
    total = tl.zeros((BLOCK,), tl.float32)
    # One slot after the other: the sum of a token has one order.
    for slot in range(TOPK):
        pair = token * TOPK + slot
        # What padding would have produced was never written.
        is_real = tl.load(ids_ptr + pair) >= 0
        value = tl.load(by_pair_ptr + pair * hidden_size + column, mask=is_inside & is_real, other=0.0)
        total += value.to(tl.float32) * tl.load(weights_ptr + pair)
    tl.store(out_ptr + token * hidden_size + column, total.to(out_ptr.dtype.element_ty), mask=is_inside)


def experts(
    x: Tensor,
    expert_ids: Tensor,
    expert_weights: Tensor,
    w13: Tensor,
    w2: Tensor,
    alpha: float,
    limit: float,
) -> Tensor:
    """See the contract."""
    x = x if x.stride(1) == 1 else x.contiguous()
    num_tokens, hidden_size = x.shape
    topk = expert_ids.shape[1]
    num_experts, _, width = w2.shape
    assert w13.is_contiguous() and w2.is_contiguous()
    out = torch.empty((num_tokens, hidden_size), dtype=x.dtype, device=x.device)
    if not num_tokens:
        return out
    expert_ids, expert_weights = expert_ids.contiguous(), expert_weights.contiguous()
    num_pairs = num_tokens * topk
    order = torch.empty((num_pairs,), dtype=torch.int32, device=x.device)
    counts = torch.empty((num_experts,), dtype=torch.int32, device=x.device)
    sort_pairs_kernel[(num_experts,)](expert_ids, order, counts, num_pairs, BLOCK=_SCAN, num_warps=4)
    is_decode = num_pairs <= _DECODE_PAIRS
    block_rows = 16 if is_decode else 64
    # Every expert's last tile may be partly filled.
    num_tiles = min(num_pairs, triton.cdiv(num_pairs, block_rows) + num_experts)
    block_experts = triton.next_power_of_2(num_experts)
    active = torch.empty((num_pairs, width), dtype=x.dtype, device=x.device)
    by_pair = torch.empty((num_pairs, hidden_size), dtype=x.dtype, device=x.device)
    block_columns = min(64, max(16, triton.next_power_of_2(width)))
    gate_up_kernel[(num_tiles, triton.cdiv(width, block_columns))](
        x,
        order,
        counts,
        w13,
        active,
        x.stride(0),
        hidden_size,
        width,
        alpha,
        limit,
        TOPK=topk,
        NUM_EXPERTS=num_experts,
        BLOCK_EXPERTS=block_experts,
        BLOCK_ROWS=block_rows,
        BLOCK_COLUMNS=block_columns,
        BLOCK_K=64,
        num_warps=4,
        num_stages=3,
    )
    block_columns = min(64, max(16, triton.next_power_of_2(hidden_size)))
    down_kernel[(num_tiles, triton.cdiv(hidden_size, block_columns))](
        active,
        order,
        counts,
        w2,
        by_pair,
        hidden_size,
        width,
        NUM_EXPERTS=num_experts,
        BLOCK_EXPERTS=block_experts,
        BLOCK_ROWS=block_rows,
        BLOCK_COLUMNS=block_columns,
        BLOCK_K=64,
        num_warps=4,
        num_stages=3,
    )
    block = min(1024, triton.next_power_of_2(hidden_size))
    grid = (num_tokens, triton.cdiv(hidden_size, block))
    combine_kernel[grid](by_pair, expert_ids, expert_weights, out, hidden_size, TOPK=topk, BLOCK=block, num_warps=4)
    return out
