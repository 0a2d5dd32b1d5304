"""Definition of `choose_blocks`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from slipstream.kernels.attention.index_score.reference import index_score
from slipstream.kernels.attention.select_blocks.reference import select_blocks

if TYPE_CHECKING:
    from jaxtyping import Float, Int32, Int64


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
    num_index_blocks = (int(positions.max()) if num_tokens else -1) // page_size + 1
    if num_index_blocks <= topk:
        # Everything visible fits: scores cannot change the choice, so none are computed.
        index_blocks = torch.arange(topk, device=index_q.device)
        own_index_block = (positions // page_size).view(-1, 1, 1)
        chosen = torch.where(index_blocks <= own_index_block, index_blocks, -1).int()
        return chosen.expand(-1, num_index_heads, -1)
    table = index_page_table[:, :num_index_blocks]
    scores = index_score(index_q, index_k_pages, table, req_of_token, positions)
    return select_blocks(scores, positions, page_size, topk, num_init_blocks, num_local_blocks)
