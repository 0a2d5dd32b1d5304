"""`dense_attend` in Triton: a program per tile of tokens, key-value head and split.

A row is one query head of one token. The tokens of a tile may belong to several requests: each request's keys are read
once for all of its rows in the tile.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from slipstream.kernels.attention.triton_parts import (
    DECODE_TOKENS,
    attend_tile,
    merge_splits,
    part_buffers,
    store_part,
)

_DECODE_KEYS = 64
_PREFILL_KEYS = 32
_DECODE_SPLITS = 128
_DECODE_ROWS = 16
_PREFILL_ROWS = 64


@triton.jit(do_not_specialize=["num_tokens", "scale"])
def dense_attend_kernel(
    q_ptr,
    k_pages_ptr,
    v_pages_ptr,
    table_ptr,
    req_ptr,
    positions_ptr,
    mixed_ptr,
    stats_ptr,
    scale,
    first_visible,
    num_tokens,
    q_stride_token,
    q_stride_head,
    page_stride,
    slot_stride,
    table_stride,
    num_splits,
    GROUP: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    TILE_TOKENS: tl.constexpr,
    BLOCK_GROUP: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
):
    kv_head = tl.program_id(1)
    split = tl.program_id(2)
    BLOCK_ROWS: tl.constexpr = TILE_TOKENS * BLOCK_GROUP
    rows = tl.arange(0, BLOCK_ROWS)
    token = (tl.program_id(0) * TILE_TOKENS + rows // BLOCK_GROUP).to(tl.int64)
    in_group = rows % BLOCK_GROUP
    is_row = (token < num_tokens) & (in_group < GROUP)
    head = kv_head * GROUP + in_group
    lanes = tl.arange(0, BLOCK_DIM)
    is_lane = lanes < HEAD_DIM
    query_place = token[:, None] * q_stride_token + head[:, None] * q_stride_head + lanes[None, :]
    queries = tl.load(q_ptr + query_place, mask=is_row[:, None] & is_lane[None, :], other=0.0)
    position = tl.load(positions_ptr + token, mask=is_row, other=-1)
    req = tl.load(req_ptr + token, mask=is_row, other=0)
    best = tl.full((BLOCK_ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_ROWS,), tl.float32)
    mixed = tl.zeros((BLOCK_ROWS, BLOCK_DIM), tl.float32)
    first_tile = first_visible // BLOCK_KEYS
    # The first tile of this split: splits are dealt from tile 0 on, wherever the visible part begins.
    first_own = first_tile + (split - first_tile % num_splits + num_splits) % num_splits
    is_left = is_row & (position >= first_visible)
    while tl.max(is_left.to(tl.int32), 0) > 0:
        own_req = tl.min(tl.where(is_left, req, 1 << 40), 0)
        is_own = is_left & (req == own_req)
        is_left = is_left & (req != own_req)
        last = tl.max(tl.where(is_own, position, -1), 0)
        table = table_ptr + own_req * table_stride
        for tile in range(first_own, last // BLOCK_KEYS + 1, num_splits):
            key = tile * BLOCK_KEYS + tl.arange(0, BLOCK_KEYS)
            is_key = (key >= first_visible) & (key <= last)
            page = tl.load(table + key // PAGE_SIZE, mask=is_key, other=0).to(tl.int64)
            place = page * page_stride + key % PAGE_SIZE * slot_stride + kv_head * HEAD_DIM
            keys = tl.load(
                k_pages_ptr + place[None, :] + lanes[:, None], mask=is_key[None, :] & is_lane[:, None], other=0.0
            )
            values = tl.load(
                v_pages_ptr + place[:, None] + lanes[None, :], mask=is_key[:, None] & is_lane[None, :], other=0.0
            )
            is_seen = is_own[:, None] & is_key[None, :] & (key[None, :] <= position[:, None])
            new_best, new_total, new_mixed = attend_tile(
                queries, keys.to(queries.dtype), values.to(queries.dtype), is_seen, scale, best, total, mixed
            )
            # INVARIANT: a weight of zero times NaN is NaN, so rows of other requests keep what they had.
            best = tl.where(is_own, new_best, best)
            total = tl.where(is_own, new_total, total)
            mixed = tl.where(is_own[:, None], new_mixed, mixed)
    row = token * (NUM_KV_HEADS * GROUP) + head
    store_part(mixed_ptr, stats_ptr, row, split, num_splits, is_row, lanes, is_lane, best, total, mixed, HEAD_DIM)


def dense_attend(
    q: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    page_table: Tensor,
    req_of_token: Tensor,
    positions: Tensor,
    first_visible: int,
    k_scale: float = 1.0,
    v_scale: float = 1.0,
) -> Tensor:
    """See the contract."""
    req_of_token, positions = req_of_token.contiguous(), positions.contiguous()
    q = q if q.stride(2) == 1 else q.contiguous()
    num_tokens, num_heads, head_dim = q.shape
    page_size, num_kv_heads = k_pages.shape[1:3]
    assert k_pages.stride() == v_pages.stride() and k_pages.stride(2) == head_dim and k_pages.stride(3) == 1
    out = torch.empty((num_tokens, num_heads, head_dim), dtype=q.dtype, device=q.device)
    if not num_tokens:
        return out
    group = num_heads // num_kv_heads
    block_group = triton.next_power_of_2(group)
    is_decode = num_tokens <= DECODE_TOKENS
    tile_tokens = max(1, (_DECODE_ROWS if is_decode else _PREFILL_ROWS) // block_group)
    # With more keys a tile of prefill rows runs out of registers.
    block_keys = _DECODE_KEYS if is_decode else _PREFILL_KEYS
    num_tiles = triton.cdiv(page_table.shape[1] * page_size, block_keys)
    num_splits = min(num_tiles, _DECODE_SPLITS) if is_decode else 1
    mixed, stats = part_buffers(num_tokens * num_heads, num_splits, head_dim, q.device)
    dense_attend_kernel[(triton.cdiv(num_tokens, tile_tokens), num_kv_heads, num_splits)](
        q,
        k_pages,
        v_pages,
        page_table,
        req_of_token,
        positions,
        mixed,
        stats,
        head_dim**-0.5 * k_scale,
        first_visible,
        num_tokens,
        q.stride(0),
        q.stride(1),
        k_pages.stride(0),
        k_pages.stride(1),
        page_table.stride(0),
        num_splits,
        GROUP=group,
        NUM_KV_HEADS=num_kv_heads,
        HEAD_DIM=head_dim,
        PAGE_SIZE=page_size,
        TILE_TOKENS=tile_tokens,
        BLOCK_GROUP=block_group,
        BLOCK_DIM=max(16, triton.next_power_of_2(head_dim)),
        BLOCK_KEYS=block_keys,
        num_warps=4 if is_decode else 8,
        num_stages=2,
    )
    merge_splits(mixed, stats, out, v_scale)
    return out
