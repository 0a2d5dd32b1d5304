"""Definition of `index_score`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from slipstream.kernels.attention.paged import Run, load_pages, rows_of, runs_of

if TYPE_CHECKING:
    from jaxtyping import Float, Float32, Int32, Int64

NAN_SCORE = -1e30
"""What a product that is NaN counts as."""


def index_score(
    index_q: Float[Tensor, "num_tokens num_index_heads index_head_dim"],
    index_k_pages: Float[Tensor, "num_pages page_size index_head_dim"],
    index_page_table: Int32[Tensor, "num_reqs max_pages"],
    req_of_token: Int64[Tensor, "num_tokens"],
    positions: Int64[Tensor, "num_tokens"],
) -> Float32[Tensor, "num_tokens num_index_heads max_pages"]:
    """See the contract."""
    num_tokens, num_index_heads, _ = index_q.shape
    max_pages = index_page_table.shape[1]
    scores = index_q.new_full((num_tokens, num_index_heads, max_pages), float("-inf"), dtype=torch.float32)
    for run in runs_of(req_of_token, positions, num_index_heads):
        if run.max_position >= 0:
            by_block = _score_run(run, index_q, index_k_pages, index_page_table, positions)
            if by_block.shape == scores.shape:
                return by_block
            scores[run.start : run.end, :, : by_block.shape[2]] = by_block
    return scores


def _score_run(run: Run, index_q: Tensor, index_k_pages: Tensor, index_page_table: Tensor, positions: Tensor) -> Tensor:
    """Return [run tokens, num_index_heads, visible blocks] scores of one run."""
    page_size = index_k_pages.shape[1]
    num_index_blocks = run.max_position // page_size + 1
    (keys,) = load_pages((index_k_pages,), index_page_table[run.req, :num_index_blocks].tolist())
    queries, own_positions = rows_of(run, index_q, positions)
    # [run tokens, num_index_heads, num_index_blocks * page_size]
    products = torch.mm(queries.flatten(0, 1).float(), keys.float().t()).view(*queries.shape[:2], -1)
    products.nan_to_num_(nan=NAN_SCORE, posinf=float("inf"), neginf=float("-inf"))
    # Hidden products are replaced, so a key that was never written cannot leave a trace, NaN or not.
    products[:, :, run.max_position + 1 :] = float("-inf")
    if run.min_position < run.max_position:
        columns = torch.arange(products.shape[2], device=products.device)
        is_hidden = columns > own_positions.unsqueeze(1)
        products.masked_fill_(is_hidden.unsqueeze(1), float("-inf"))
    return products.view(run.num_tokens, -1, num_index_blocks, page_size).amax(3)
