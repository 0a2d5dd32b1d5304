"""`choose_blocks` in Triton: the scores of the whole table, then the choice among them."""

from __future__ import annotations

from torch import Tensor

from slipstream.kernels.attention.index_score.triton_impl import index_score
from slipstream.kernels.attention.select_blocks.triton_impl import select_blocks


def choose_blocks(
    index_q: Tensor,
    index_k_pages: Tensor,
    index_page_table: Tensor,
    req_of_token: Tensor,
    positions: Tensor,
    topk: int,
    num_init_blocks: int,
    num_local_blocks: int,
) -> Tensor:
    """See the contract."""
    scores = index_score(index_q, index_k_pages, index_page_table, req_of_token, positions)
    return select_blocks(scores, positions, index_k_pages.shape[1], topk, num_init_blocks, num_local_blocks)
