"""`sparse_attend` in Triton: a program per token, key-value head and split; rows are the query heads of the group."""

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

_MIN_KEYS = 64
_DECODE_SPLITS = 16


@triton.jit(do_not_specialize=["scale"])
def sparse_attend_kernel(
    q_ptr,
    k_pages_ptr,
    v_pages_ptr,
    table_ptr,
    req_ptr,
    positions_ptr,
    blocks_ptr,
    mixed_ptr,
    stats_ptr,
    scale,
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
    TOPK: tl.constexpr,
    BLOCK_GROUP: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    IS_DEPENDENT: tl.constexpr,
):
    if IS_DEPENDENT:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    token = tl.program_id(0).to(tl.int64)
    kv_head = tl.program_id(1)
    split = tl.program_id(2)
    rows = tl.arange(0, BLOCK_GROUP)
    lanes = tl.arange(0, BLOCK_DIM)
    is_row = rows < GROUP
    is_lane = lanes < HEAD_DIM
    head = kv_head * GROUP + rows
    query_place = token * q_stride_token + head[:, None] * q_stride_head + lanes[None, :]
    queries = tl.load(q_ptr + query_place, mask=is_row[:, None] & is_lane[None, :], other=0.0)
    position = tl.load(positions_ptr + token)
    table = table_ptr + tl.load(req_ptr + token) * table_stride
    blocks = blocks_ptr + (token * NUM_KV_HEADS + kv_head) * TOPK
    best = tl.full((BLOCK_GROUP,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_GROUP,), tl.float32)
    mixed = tl.zeros((BLOCK_GROUP, BLOCK_DIM), tl.float32)
    NUM_TILES: tl.constexpr = (TOPK * PAGE_SIZE + BLOCK_KEYS - 1) // BLOCK_KEYS
    for tile in range(split, NUM_TILES, num_splits):
        key = tile * BLOCK_KEYS + tl.arange(0, BLOCK_KEYS)
        block = tl.load(blocks + key // PAGE_SIZE, mask=key < TOPK * PAGE_SIZE, other=-1).to(tl.int64)
        is_key = (block >= 0) & (block * PAGE_SIZE + key % PAGE_SIZE <= position)
        # INVARIANT: an id of -1, and what lies behind the token, is never looked up.
        page = tl.load(table + block, mask=is_key, other=0).to(tl.int64)
        place = page * page_stride + key % PAGE_SIZE * slot_stride + kv_head * HEAD_DIM
        keys = tl.load(
            k_pages_ptr + place[None, :] + lanes[:, None], mask=is_key[None, :] & is_lane[:, None], other=0.0
        )
        values = tl.load(
            v_pages_ptr + place[:, None] + lanes[None, :], mask=is_key[:, None] & is_lane[None, :], other=0.0
        )
        best, total, mixed = attend_tile(
            queries,
            keys.to(queries.dtype),
            values.to(queries.dtype),
            is_row[:, None] & is_key[None, :],
            scale,
            best,
            total,
            mixed,
        )
    row = token * (NUM_KV_HEADS * GROUP) + head
    store_part(mixed_ptr, stats_ptr, row, split, num_splits, is_row, lanes, is_lane, best, total, mixed, HEAD_DIM)


def attend_chosen(
    q: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    page_table: Tensor,
    req_of_token: Tensor,
    positions: Tensor,
    topk_blocks: Tensor,
    k_scale: float,
    v_scale: float,
    *,
    max_splits: int,
    max_keys: int = 128,
    num_warps: int = 4,
    num_stages: int | None = None,
    is_dependent: bool = True,
) -> Tensor:
    """Return the contract's attention with up to max_splits partial sums a row; what benchmarks vary.

    Args:
        q: as in the contract, and so on up to v_scale.
        k_pages: as in the contract.
        v_pages: as in the contract.
        page_table: as in the contract.
        req_of_token: as in the contract.
        positions: as in the contract.
        topk_blocks: as in the contract.
        k_scale: as in the contract.
        v_scale: as in the contract.
        max_splits: programs among which a row's keys are dealt.
        max_keys: keys of a tile.
        num_warps: of a program.
        num_stages: tiles of keys on their way at once; None for one of float8 and two of others, measured best.
        is_dependent: launched before the kernel before it has ended.
    """
    req_of_token, positions = req_of_token.contiguous(), positions.contiguous()
    q = q if q.stride(2) == 1 else q.contiguous()
    num_tokens, num_heads, head_dim = q.shape
    page_size, num_kv_heads = k_pages.shape[1:3]
    assert k_pages.stride() == v_pages.stride() and k_pages.stride(2) == head_dim and k_pages.stride(3) == 1
    out = torch.empty((num_tokens, num_heads, head_dim), dtype=q.dtype, device=q.device)
    if not num_tokens:
        return out
    topk, group = topk_blocks.shape[2], num_heads // num_kv_heads
    block_keys = max(_MIN_KEYS, min(page_size, max_keys))
    num_splits = min(triton.cdiv(topk * page_size, block_keys), max_splits)
    mixed, stats = part_buffers(num_tokens * num_heads, num_splits, head_dim, q.device)
    is_device = q.device.type != "cpu"
    sparse_attend_kernel[(num_tokens, num_kv_heads, num_splits)](
        q,
        k_pages,
        v_pages,
        page_table,
        req_of_token,
        positions,
        topk_blocks.contiguous(),
        mixed,
        stats,
        head_dim**-0.5 * k_scale,
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
        TOPK=topk,
        BLOCK_GROUP=max(16, triton.next_power_of_2(group)),
        BLOCK_DIM=max(16, triton.next_power_of_2(head_dim)),
        BLOCK_KEYS=block_keys,
        IS_DEPENDENT=is_dependent and is_device,
        num_warps=num_warps,
        num_stages=num_stages or (1 if k_pages.dtype == torch.float8_e4m3fn else 2),
        launch_pdl=is_dependent and is_device,
    )
    merge_splits(mixed, stats, out, v_scale)
    return out


def sparse_attend(
    q: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    page_table: Tensor,
    req_of_token: Tensor,
    positions: Tensor,
    topk_blocks: Tensor,
    k_scale: float = 1.0,
    v_scale: float = 1.0,
) -> Tensor:
    """See the contract."""
    max_splits = _DECODE_SPLITS if len(q) <= DECODE_TOKENS else 1
    return attend_chosen(
        q,
        k_pages,
        v_pages,
        page_table,
        req_of_token,
        positions,
        topk_blocks,
        k_scale,
        v_scale,
        max_splits=max_splits,
    )
