"""`select_blocks` in Triton: one program per token and head; topk turns, each taking the largest key that is left.

Keys are the reference's 64-bit integers, all different, so the choice is a set that no order of reading can change.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from slipstream.kernels.attention.index_score.reference import NAN_SCORE

_MAX_BLOCK = 1024


@triton.jit
def select_blocks_kernel(
    scores_ptr,
    positions_ptr,
    chosen_ptr,
    max_pages,
    num_init_blocks,
    num_local_blocks,
    NUM_HEADS: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    TOPK: tl.constexpr,
    BLOCK_TOPK: tl.constexpr,
    BLOCK: tl.constexpr,
    NAN_VALUE: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    LAST_ID: tl.constexpr = (1 << 24) - 1
    position = tl.load(positions_ptr + token)
    # Division of a negative number rounds towards zero here, so padding is named.
    own = tl.where(position < 0, -1, position // PAGE_SIZE)
    num_visible = tl.minimum(own + 1, max_pages)
    lanes = tl.arange(0, BLOCK)
    turns = tl.arange(0, BLOCK_TOPK)
    chosen = tl.full((BLOCK_TOPK,), LAST_ID, tl.int64)
    limit = tl.full((), 1 << 62, tl.int64)
    for turn in range(tl.minimum(num_visible, TOPK)):
        best = tl.full((), -(1 << 62), tl.int64)
        for start in range(0, num_visible, BLOCK):
            block = start + lanes
            is_visible = block < num_visible
            score = tl.load(scores_ptr + (token * NUM_HEADS + head) * max_pages + block, mask=is_visible, other=0.0)
            # Adding zero makes -0.0 into +0.0.
            score = tl.where(score == score, score, NAN_VALUE) + 0.0
            bits = score.to(tl.int32, bitcast=True)
            ordered = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.int64)
            last_id = LAST_ID - block.to(tl.int64)
            key = ordered * (1 << 24) + last_id
            key = tl.where(block < num_init_blocks, last_id + (1 << 57), key)
            key = tl.where(own - block < num_local_blocks, last_id + (1 << 58), key)
            key = tl.where(is_visible & (key < limit), key, -(1 << 62))
            best = tl.maximum(best, tl.max(key, 0))
        limit = best
        chosen = tl.where(turns == turn, LAST_ID - (best & LAST_ID), chosen)
    # Ids are different, so a rank is the number of smaller ones; what was not chosen follows in any order.
    rank = tl.sum((chosen[None, :] < chosen[:, None]).to(tl.int32), 1)
    is_chosen = chosen < LAST_ID
    place = chosen_ptr + (token * NUM_HEADS + head) * TOPK
    num_chosen = tl.sum(is_chosen.to(tl.int32), 0)
    tl.store(place + rank, chosen.to(tl.int32), mask=is_chosen)
    tl.store(place + turns, tl.full((BLOCK_TOPK,), -1, tl.int32), mask=(turns >= num_chosen) & (turns < TOPK))


def select_blocks(
    scores: Tensor, positions: Tensor, page_size: int, topk: int, num_init_blocks: int, num_local_blocks: int
) -> Tensor:
    """See the contract."""
    positions = positions.contiguous()
    scores = scores.contiguous()
    num_tokens, num_heads, max_pages = scores.shape
    chosen = torch.empty((num_tokens, num_heads, topk), dtype=torch.int32, device=scores.device)
    if num_tokens:
        select_blocks_kernel[(num_tokens, num_heads)](
            scores,
            positions,
            chosen,
            max_pages,
            num_init_blocks,
            num_local_blocks,
            NUM_HEADS=num_heads,
            PAGE_SIZE=page_size,
            TOPK=topk,
            BLOCK_TOPK=triton.next_power_of_2(topk),
            BLOCK=min(_MAX_BLOCK, max(32, triton.next_power_of_2(max_pages))),
            NAN_VALUE=NAN_SCORE,
            num_warps=4,
        )
    return chosen
