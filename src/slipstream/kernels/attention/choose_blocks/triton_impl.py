"""`choose_blocks` in Triton: the scores of the visible blocks, then the choice among them, back to back."""

from __future__ import annotations

import torch
from torch import Tensor

from slipstream.kernels.attention.index_score.triton_impl import score_visible
from slipstream.kernels.attention.select_blocks.triton_impl import choose_from


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
    # Not filled: the choice reads no score behind a token's own block.
    scores = torch.empty((*index_q.shape[:2], index_page_table.shape[1]), device=index_q.device)
    if len(index_q):
        score_visible(index_q, index_k_pages, index_page_table, req_of_token, positions, scores)
    return choose_from(scores, positions, index_k_pages.shape[1], topk, num_init_blocks, num_local_blocks)
