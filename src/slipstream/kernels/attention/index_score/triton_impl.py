"""`index_score` in Triton: tiles of keys against a tile of query tokens, one maximum per block.

Keys are the left operand: they are many and the queries of a ladder few. The tokens of a tile may belong to several
requests: each request's keys are read once for all of its tokens in the tile. A product depends on its query and key
alone, so neither the tile nor the number of splits nor the batch changes a score.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from slipstream.kernels.attention.index_score.reference import NAN_SCORE

_MIN_KEYS = 64
_MIN_SPLITS, _MAX_PROGRAMS = 64, 264


@triton.jit
def load_keys(
    k_pages_ptr, table, tile, last, lanes, is_lane, page_stride, slot_stride, PAGE: tl.constexpr, KEYS: tl.constexpr
):
    """Return [KEYS, dim] keys of a tile, zeros behind position `last`."""
    in_tile = tl.arange(0, KEYS)
    key_position = tile * KEYS + in_tile
    is_key = key_position <= last
    if PAGE == KEYS:
        # One page, which may be asked for although the tile lies behind `last`: the null page then.
        place = tl.load(table + tile, mask=tile * KEYS <= last, other=0).to(tl.int64) * page_stride
        place += in_tile * slot_stride
    else:
        page = tl.load(table + key_position // PAGE, mask=is_key, other=0)
        place = page.to(tl.int64) * page_stride + key_position % PAGE * slot_stride
    return tl.load(k_pages_ptr + place[:, None] + lanes[None, :], mask=is_key[:, None] & is_lane[None, :], other=0.0)


@triton.jit
def store_best(
    scores_ptr, keys, queries, tile, position, row_place, is_own, max_pages, NAN_VALUE: tl.constexpr, PAGE: tl.constexpr
):
    """Write the best product of every row with each page of a tile of keys."""
    KEYS: tl.constexpr = keys.shape[0]
    ROWS: tl.constexpr = queries.shape[1]
    key_position = tile * KEYS + tl.arange(0, KEYS)
    products = tl.dot(keys.to(queries.dtype), queries, input_precision="ieee")
    products = tl.where(products == products, products, NAN_VALUE)
    products = tl.where(key_position[:, None] <= position[None, :], products, float("-inf"))
    best = tl.max(tl.reshape(products, (KEYS // PAGE, PAGE, ROWS)), 1)
    block = tile * (KEYS // PAGE) + tl.arange(0, KEYS // PAGE)
    place = row_place[None, :] + block[:, None]
    tl.store(scores_ptr + place, best, mask=is_own[None, :] & (block < max_pages)[:, None])


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
    IS_DEPENDENT: tl.constexpr,
    IS_EARLY: tl.constexpr,
    NUM_STAGES: tl.constexpr,
):
    if IS_DEPENDENT:
        tl.extra.cuda.gdc_launch_dependents()
        if not IS_EARLY:
            tl.extra.cuda.gdc_wait()
    split = tl.program_id(1)
    rows = tl.arange(0, TILE_TOKENS * BLOCK_HEADS)
    token = tl.program_id(0) * TILE_TOKENS + rows // BLOCK_HEADS
    head = rows % BLOCK_HEADS
    is_row = (token < num_tokens) & (head < NUM_HEADS)
    token = token.to(tl.int64)
    lanes = tl.arange(0, BLOCK_DIM)
    is_lane = lanes < HEAD_DIM
    position = tl.load(positions_ptr + token, mask=is_row, other=-1)
    req = tl.load(req_ptr + token, mask=is_row, other=0)
    row_place = (token * NUM_HEADS + head) * max_pages
    num_tiles = (max_pages * PAGE_SIZE + BLOCK_KEYS - 1) // BLOCK_KEYS
    is_left = is_row & (position >= 0)
    num_early = 0
    early_req = tl.min(tl.where(is_left, req, 1 << 40), 0)
    if IS_EARLY:
        # HAZARD: keys at the batch's own positions are on their way from the kernel before; older ones are not.
        first = tl.min(tl.where(is_left & (req == early_req), position, 1 << 40), 0)
        num_early = ((split + 1) * BLOCK_KEYS <= first).to(tl.int32) * (early_req < (1 << 40)).to(tl.int32)
        early_table = table_ptr + tl.where(num_early > 0, early_req, 0) * table_stride
        last = tl.where(num_early > 0, first, -1)
        early_keys = load_keys(
            k_pages_ptr, early_table, split, last, lanes, is_lane, page_stride, slot_stride, PAGE_SIZE, BLOCK_KEYS
        )
        if IS_DEPENDENT:
            tl.extra.cuda.gdc_wait()
    query_place = token[None, :] * q_stride_token + head[None, :] * q_stride_head + lanes[:, None]
    queries = tl.load(q_ptr + query_place, mask=is_row[None, :] & is_lane[:, None], other=0.0)
    if IS_EARLY:
        is_own = is_left & (req == early_req) & (num_early > 0)
        store_best(scores_ptr, early_keys, queries, split, position, row_place, is_own, max_pages, NAN_VALUE, PAGE_SIZE)
    # One turn per request that has tokens in this tile; a tile of padding has none.
    while tl.max(is_left.to(tl.int32), 0) > 0:
        own_req = tl.min(tl.where(is_left, req, 1 << 40), 0)
        is_own = is_left & (req == own_req)
        is_left = is_left & (req != own_req)
        last = tl.max(tl.where(is_own, position, -1), 0)
        table = table_ptr + own_req * table_stride
        begin = split + num_splits * tl.where(own_req == early_req, num_early, 0)
        end = tl.minimum(num_tiles, last // BLOCK_KEYS + 1)
        for tile in tl.range(begin, end, num_splits, num_stages=NUM_STAGES):
            keys = load_keys(
                k_pages_ptr, table, tile, last, lanes, is_lane, page_stride, slot_stride, PAGE_SIZE, BLOCK_KEYS
            )
            store_best(scores_ptr, keys, queries, tile, position, row_place, is_own, max_pages, NAN_VALUE, PAGE_SIZE)


def score_visible(
    index_q: Tensor,
    index_k_pages: Tensor,
    index_page_table: Tensor,
    req_of_token: Tensor,
    positions: Tensor,
    scores: Tensor,
    *,
    max_programs: int = _MAX_PROGRAMS,
    num_stages: int = 1,
    num_warps: int = 4,
    is_dependent: bool = True,
    is_early: bool = False,
) -> None:
    """Write the scores of the blocks up to each token's own; what lies behind them is left as it was.

    Args:
        index_q: as in the contract, and so on up to positions.
        index_k_pages: as in the contract.
        index_page_table: as in the contract.
        req_of_token: as in the contract.
        positions: as in the contract.
        scores: [num_tokens, num_index_heads, max_pages] float32, written.
        max_programs: how many thread blocks share the keys; no result depends on it.
        num_stages: tiles of keys on their way at once.
        num_warps: of a thread block.
        is_dependent: launched before the kernel before it has ended.
        is_early: a program's first tile of keys is read before the kernel before has ended, unless it reaches the
            batch's own positions. Legal where positions, requests, table and all older keys were written before the
            last full (not programmatic) edge of the stream or graph.
    """
    req_of_token, positions = req_of_token.contiguous(), positions.contiguous()
    index_q = index_q if index_q.stride(2) == 1 else index_q.contiguous()
    num_tokens, num_heads, head_dim = index_q.shape
    page_size, max_pages = index_k_pages.shape[1], index_page_table.shape[1]
    assert index_k_pages.stride(2) == 1
    block_heads = triton.next_power_of_2(num_heads)
    tile_tokens = max(1, 16 // block_heads)
    block_keys = max(_MIN_KEYS, page_size)
    num_token_tiles = triton.cdiv(num_tokens, tile_tokens)
    num_splits = min(triton.cdiv(max_pages * page_size, block_keys), max(_MIN_SPLITS, max_programs // num_token_tiles))
    is_device = index_q.device.type != "cpu"
    index_score_kernel[(num_token_tiles, num_splits)](
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
        IS_DEPENDENT=is_dependent and is_device,
        IS_EARLY=is_early,
        NUM_STAGES=num_stages,
        num_warps=num_warps,
        launch_pdl=is_dependent and is_device,
    )


def index_score(
    index_q: Tensor, index_k_pages: Tensor, index_page_table: Tensor, req_of_token: Tensor, positions: Tensor
) -> Tensor:
    """See the contract."""
    size = (*index_q.shape[:2], index_page_table.shape[1])
    scores = torch.full(size, float("-inf"), device=index_q.device)
    if len(index_q):
        score_visible(index_q, index_k_pages, index_page_table, req_of_token, positions, scores)
    return scores
