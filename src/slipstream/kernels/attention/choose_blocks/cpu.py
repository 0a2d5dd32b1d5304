"""Choice on the host, for the few query tokens of a ladder: sorting short lists costs less than a dozen tensor calls.

Prompt chunks go through the reference. Both give the same choice, to the bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from slipstream.kernels.attention.choose_blocks import reference
from slipstream.kernels.attention.index_score.reference import index_score

if TYPE_CHECKING:
    from jaxtyping import Float, Int32, Int64

MAX_HOST_SCORES = 4096
"""Scores that are sorted on the host; with more, the reference's tensor calls are faster."""


def choose_blocks(
    index_q: Float[Tensor, "num_tokens num_index_heads index_head_dim"],
    index_k_pages: Float[Tensor, "num_pages page_size index_head_dim"],
    index_page_table: Int32[Tensor, "num_reqs max_pages"],
    req_of_token: Int64[Tensor, "num_tokens"],
    positions: Int64[Tensor, "num_tokens"],
    topk: int,
    num_init_blocks: int,
    num_local_blocks: int,
) -> Int32[Tensor, "num_tokens num_kv_heads topk"]:
    """See the contract."""
    num_tokens, num_index_heads, _ = index_q.shape
    page_size = index_k_pages.shape[1]
    own_blocks = [position // page_size for position in positions.tolist()]
    num_index_blocks = max(own_blocks, default=-1) + 1
    if not 0 < num_tokens * num_index_heads * num_index_blocks <= MAX_HOST_SCORES:
        return reference.choose_blocks(
            index_q,
            index_k_pages,
            index_page_table,
            req_of_token,
            positions,
            topk,
            num_init_blocks,
            num_local_blocks,
        )
    if num_index_blocks <= topk:
        # Everything visible fits: scores cannot change the choice, so none are computed.
        chosen = [[_filled(list(range(own + 1)), topk)] * num_index_heads for own in own_blocks]
    else:
        table = index_page_table[:, :num_index_blocks]
        scores = index_score(index_q, index_k_pages, table, req_of_token, positions)
        chosen = [
            [_filled(_best(row, own, topk, num_init_blocks, num_local_blocks), topk) for row in rows]
            for rows, own in zip(scores.tolist(), own_blocks, strict=True)
        ]
    return torch.tensor(chosen, dtype=torch.int32, device=index_q.device)


def _best(scores: list[float], own: int, topk: int, num_init_blocks: int, num_local_blocks: int) -> list[int]:
    """Return the chosen ones of blocks 0 .. own, ascending.

    `index_score` leaves no NaN, and -0.0 equals 0.0 here as well. A reversed sort is stable too: of equal scores the
    lower block comes first.
    """
    num_visible = own + 1
    if num_visible <= topk:
        return list(range(num_visible))
    chosen = {*range(num_init_blocks), *range(num_visible - num_local_blocks, num_visible)}
    for index_block in sorted(range(num_visible), key=scores.__getitem__, reverse=True):
        if len(chosen) == topk:
            break
        chosen.add(index_block)
    return sorted(chosen)


def _filled(chosen: list[int], topk: int) -> list[int]:
    """Return the ids with -1 behind them up to topk."""
    return chosen + [-1] * (topk - len(chosen))
