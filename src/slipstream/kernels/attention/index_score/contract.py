"""Score key blocks for sparse selection.

Not here: choosing blocks (`select_blocks`), both in one call (`choose_blocks`), or reading values (`sparse_attend`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from slipstream.kernels.attention.checks import check_addressing
from slipstream.kernels.faults import shape_fault
from slipstream.kernels.select import select

if TYPE_CHECKING:
    from jaxtyping import Float, Float32, Int32, Int64


def index_score(
    index_q: Float[Tensor, "num_tokens num_index_heads index_head_dim"],
    index_k_pages: Float[Tensor, "num_pages page_size index_head_dim"],
    index_page_table: Int32[Tensor, "num_reqs max_pages"],
    req_of_token: Int64[Tensor, "num_tokens"],
    positions: Int64[Tensor, "num_tokens"],
) -> Float32[Tensor, "num_tokens num_index_heads max_pages"]:
    """Return the largest visible product of each index query with each block's index keys.

    A block is the page_size tokens at positions block * page_size onwards, so block b is page-table column b.

    Args:
        index_q: [num_tokens, num_index_heads, index_head_dim] float32 or bfloat16.
        index_k_pages: [num_pages, page_size, index_head_dim] float32, bfloat16 or float8_e4m3fn; one key per token,
            shared by the heads.
        index_page_table: [num_reqs, max_pages] int32; entries past the request's pages are 0.
        req_of_token: [num_tokens] int64; row of the page table.
        positions: [num_tokens] int64; a token sees positions 0 .. its own; -1 (padding) sees nothing.

    Returns:
        [num_tokens, num_index_heads, max_pages] float32, unscaled; -inf where the block has no visible token.

    Raises:
        ShapeError: an axis or a dtype disagrees.

    Graph: lengths are read on the device; the width of the result is the table's, never a host length.
    Numerics: float32 products and accumulation. A product that is NaN counts as -1e30: above no token at all.
        Scaling is left out because a ranking ignores it.
    Source: config fields sparse_index_dim, sparse_block_size, sparse_score_type = max.
    """
    if index_q.dim() != 3 or index_k_pages.dim() != 3 or index_q.shape[2] != index_k_pages.shape[2]:
        allowed = f"[num_tokens, num_index_heads, {index_k_pages.shape[-1]}] for these index_k_pages"
        raise shape_fault("index_score", "index_q", index_q, allowed)
    check_addressing("index_score", index_q, index_page_table, req_of_token, positions)
    function = select("attention/index_score", index_q.device.type).function
    scores: torch.Tensor = function(index_q, index_k_pages, index_page_table, req_of_token, positions)
    return scores
