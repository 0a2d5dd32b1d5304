"""`index_score` in Triton: a tile of query tokens against tiles of keys, one maximum per block.

The tokens of a tile may belong to several requests: each request's keys are read once for all of its tokens in the
tile. A product depends on its query and key alone, so neither the tile nor the batch changes a score.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from slipstream.kernels.attention.index_score.reference import NAN_SCORE

_MIN_KEYS = 64
_MAX_SPLITS = 64


@triton.jit(do_not_specialize=["num_tokens"])
def index_score_kernel(
    q_ptr,
    k_pages_ptr,
    table_ptr,
    req_ptr,
    positions_ptr,
    scores_ptr,
    num_tokens,
    max_pages,
    q_stride_token,
    q_stride_head,
    page_stride,
    slot_stride,
    table_stride,
    num_splits,
    NAN_VALUE: tl.constexpr,
    NUM_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    TILE_TOKENS: tl.constexpr,
    BLOCK_HEADS: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
):
    first_token = tl.program_id(0) * TILE_TOKENS
    split = tl.program_id(1)
    BLOCK_ROWS: tl.constexpr = TILE_TOKENS * BLOCK_HEADS
    TILE_PAGES: tl.constexpr = BLOCK_KEYS // PAGE_SIZE
    rows = tl.arange(0, BLOCK_ROWS)
    token = first_token + rows // BLOCK_HEADS
    head = rows % BLOCK_HEADS
    is_row = (token < num_tokens) & (head < NUM_HEADS)
    token = token.to(tl.int64)
    lanes = tl.arange(0, BLOCK_DIM)
    is_lane = lanes < HEAD_DIM
    query_place = token[:, None] * q_stride_token + head[:, None] * q_stride_head + lanes[None, :]
    queries = tl.load(q_ptr + query_place, mask=is_row[:, None] & is_lane[None, :], other=0.0)
    position = tl.load(positions_ptr + token, mask=is_row, other=-1)
    req = tl.load(req_ptr + token, mask=is_row, other=0)
    keys_in_tile = tl.arange(0, BLOCK_KEYS)
    pages_in_tile = tl.arange(0, TILE_PAGES)
    num_tiles = (max_pages + TILE_PAGES - 1) // TILE_PAGES
    is_left = is_row & (position >= 0)
    # One turn per request that has tokens in this tile; a tile of padding has none.
    while tl.max(is_left.to(tl.int32), 0) > 0:
        own_req = tl.min(tl.where(is_left, req, 1 << 40), 0)
        is_own = is_left & (req == own_req)
        is_left = is_left & (req != own_req)
        last = tl.max(tl.where(is_own, position, -1), 0)
        for tile in range(split, tl.minimum(num_tiles, last // BLOCK_KEYS + 1), num_splits):
            key_position = tile * BLOCK_KEYS + keys_in_tile
            is_key = key_position <= last
            page = tl.load(table_ptr + own_req * table_stride + key_position // PAGE_SIZE, mask=is_key, other=0)
            key_place = page.to(tl.int64) * page_stride + key_position % PAGE_SIZE * slot_stride
            keys = tl.load(
                k_pages_ptr + key_place[None, :] + lanes[:, None], mask=is_key[None, :] & is_lane[:, None], other=0.0
            )
            products = tl.dot(queries, keys.to(queries.dtype), input_precision="ieee")
            products = tl.where(products == products, products, NAN_VALUE)
            products = tl.where(key_position[None, :] <= position[:, None], products, float("-inf"))
            best = tl.max(tl.reshape(products, (BLOCK_ROWS, TILE_PAGES, PAGE_SIZE)), 2)
            block = tile * TILE_PAGES + pages_in_tile
            score_place = (token[:, None] * NUM_HEADS + head[:, None]) * max_pages + block[None, :]
            tl.store(scores_ptr + score_place, best, mask=is_own[:, None] & (block < max_pages)[None, :])


def index_score(
    index_q: Tensor, index_k_pages: Tensor, index_page_table: Tensor, req_of_token: Tensor, positions: Tensor
) -> Tensor:
    """See the contract."""
    req_of_token, positions = req_of_token.contiguous(), positions.contiguous()
    index_q = index_q if index_q.stride(2) == 1 else index_q.contiguous()
    num_tokens, num_heads, head_dim = index_q.shape
    page_size, max_pages = index_k_pages.shape[1], index_page_table.shape[1]
    assert index_k_pages.stride(2) == 1
    scores = torch.full((num_tokens, num_heads, max_pages), float("-inf"), device=index_q.device)
    if not num_tokens:
        return scores
    block_heads = triton.next_power_of_2(num_heads)
    tile_tokens = max(1, 16 // block_heads)
    block_keys = max(_MIN_KEYS, page_size)
    num_tiles = triton.cdiv(max_pages * page_size, block_keys)
    num_splits = min(num_tiles, _MAX_SPLITS)
    index_score_kernel[(triton.cdiv(num_tokens, tile_tokens), num_splits)](
        index_q,
        index_k_pages,
        index_page_table,
        req_of_token,
        positions,
        scores,
        num_tokens,
        max_pages,
        index_q.stride(0),
        index_q.stride(1),
        index_k_pages.stride(0),
        index_k_pages.stride(1),
        index_page_table.stride(0),
        num_splits,
        NAN_VALUE=NAN_SCORE,
        NUM_HEADS=num_heads,
        HEAD_DIM=head_dim,
        PAGE_SIZE=page_size,
        TILE_TOKENS=tile_tokens,
        BLOCK_HEADS=block_heads,
        BLOCK_DIM=max(16, triton.next_power_of_2(head_dim)),
        BLOCK_KEYS=block_keys,
        num_warps=4,
        num_stages=3,
    )
    return scores
