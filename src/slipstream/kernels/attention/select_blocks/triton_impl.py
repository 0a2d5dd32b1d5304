"""`select_blocks` in Triton: one program per token and head, which holds all of its scores in registers.

Forced blocks are taken first; then, turn by turn, the largest score that is left and of equal ones the lowest block.
That is the reference's order of 64-bit keys, in two comparisons of 32 bits: the choice is the same to the bit.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from slipstream.kernels.attention.index_score.reference import NAN_SCORE

_SMALL, _MEDIUM = 512, 2048
_LARGEST = 65536


@triton.jit
def choose_among(
    scores_ptr,
    chosen_ptr,
    own,
    num_visible,
    num_init_blocks,
    num_local_blocks,
    TOPK: tl.constexpr,
    BLOCK_TOPK: tl.constexpr,
    BLOCK: tl.constexpr,
    NAN_VALUE: tl.constexpr,
):
    """Choose among the first num_visible <= BLOCK scores at scores_ptr and write the ids, ascending, then -1."""
    TAKEN: tl.constexpr = -(1 << 31)
    block = tl.arange(0, BLOCK)
    is_visible = block < num_visible
    score = tl.load(scores_ptr + block, mask=is_visible, other=0.0)
    # Adding zero makes -0.0 into +0.0.
    score = tl.where(score == score, score, NAN_VALUE) + 0.0
    bits = score.to(tl.int32, bitcast=True)
    # The bits of a negative float fall as the number rises. No score has the bits of TAKEN then.
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    is_chosen = is_visible & ((block < num_init_blocks) | (own - block < num_local_blocks))
    ordered = tl.where(is_visible & (is_chosen == 0), ordered, TAKEN)
    num_turns = tl.minimum(num_visible, TOPK) - tl.sum(is_chosen.to(tl.int32), 0)
    for _ in range(num_turns):
        best = tl.max(ordered, 0)
        first = tl.min(tl.where(ordered == best, block, BLOCK), 0)
        is_chosen = is_chosen | (block == first)
        ordered = tl.where(block == first, TAKEN, ordered)
    rank = tl.cumsum(is_chosen.to(tl.int32), 0) - 1
    tl.store(chosen_ptr + rank, block, mask=is_chosen)
    turns = tl.arange(0, BLOCK_TOPK)
    empty = tl.full((BLOCK_TOPK,), -1, tl.int32)
    tl.store(chosen_ptr + turns, empty, mask=(turns >= tl.minimum(num_visible, TOPK)) & (turns < TOPK))


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
    SMALL: tl.constexpr,
    MEDIUM: tl.constexpr,
    BLOCK: tl.constexpr,
    NAN_VALUE: tl.constexpr,
    IS_DEPENDENT: tl.constexpr,
):
    if IS_DEPENDENT:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    row = tl.program_id(0).to(tl.int64) * NUM_HEADS + tl.program_id(1)
    position = tl.load(positions_ptr + tl.program_id(0))
    # Division of a negative number rounds towards zero here, so padding is named.
    own = tl.where(position < 0, -1, position // PAGE_SIZE).to(tl.int32)
    num_visible = tl.minimum(own + 1, max_pages)
    scores = scores_ptr + row * max_pages
    chosen = chosen_ptr + row * TOPK
    # A short context in a wide table should not pay for the table's width.
    if num_visible <= SMALL:
        choose_among(
            scores, chosen, own, num_visible, num_init_blocks, num_local_blocks, TOPK, BLOCK_TOPK, SMALL, NAN_VALUE
        )
    elif num_visible <= MEDIUM:
        choose_among(
            scores, chosen, own, num_visible, num_init_blocks, num_local_blocks, TOPK, BLOCK_TOPK, MEDIUM, NAN_VALUE
        )
    else:
        choose_among(
            scores, chosen, own, num_visible, num_init_blocks, num_local_blocks, TOPK, BLOCK_TOPK, BLOCK, NAN_VALUE
        )


def choose_from(
    scores: Tensor,
    positions: Tensor,
    page_size: int,
    topk: int,
    num_init_blocks: int,
    num_local_blocks: int,
    *,
    num_warps: int | None = None,
    is_dependent: bool = True,
) -> Tensor:
    """Return the contract's choice; scores behind a token's own block may be anything.

    Args:
        scores: as in the contract, and so on up to num_local_blocks.
        positions: as in the contract.
        page_size: as in the contract.
        topk: as in the contract.
        num_init_blocks: as in the contract.
        num_local_blocks: as in the contract.
        num_warps: of a program; None for as many as the table's width wants.
        is_dependent: launched before the kernel before it has ended.
    """
    positions = positions.contiguous()
    scores = scores.contiguous()
    num_tokens, num_heads, max_pages = scores.shape
    chosen = torch.empty((num_tokens, num_heads, topk), dtype=torch.int32, device=scores.device)
    if not num_tokens:
        return chosen
    block = max(32, triton.next_power_of_2(max_pages))
    assert block <= _LARGEST, f"a table of {max_pages} pages does not fit into the registers of a program"
    small, medium = min(block, _SMALL), min(block, _MEDIUM)
    is_device = scores.device.type != "cpu"
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
        SMALL=small,
        MEDIUM=medium,
        BLOCK=block,
        NAN_VALUE=NAN_SCORE,
        IS_DEPENDENT=is_dependent and is_device,
        num_warps=num_warps or (4 if block <= 8192 else 16),
        launch_pdl=is_dependent and is_device,
    )
    return chosen


def select_blocks(
    scores: Tensor, positions: Tensor, page_size: int, topk: int, num_init_blocks: int, num_local_blocks: int
) -> Tensor:
    """See the contract."""
    return choose_from(scores, positions, page_size, topk, num_init_blocks, num_local_blocks)
