"""Score blocks and choose among them in one call, which never has to store the scores of a whole context."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from slipstream.kernels.attention.checks import check_addressing
from slipstream.kernels.attention.select_blocks.contract import check_budget
from slipstream.kernels.faults import shape_fault
from slipstream.kernels.select import select

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
    """Return `select_blocks` of `index_score`.

    Args:
        index_q: [num_tokens, num_index_heads, index_head_dim] float32 or bfloat16.
        index_k_pages: [num_pages, page_size, index_head_dim] float32, bfloat16 or float8_e4m3fn.
        index_page_table: [num_reqs, max_pages] int32.
        req_of_token: [num_tokens] int64.
        positions: [num_tokens] int64; -1 is padding.
        topk: blocks per token and head.
        num_init_blocks: first blocks that are always chosen.
        num_local_blocks: last blocks up to the token's own that are always chosen.

    Returns:
        [num_tokens, num_kv_heads, topk] int32 logical block ids, ascending, then -1; index head g chooses for
        key-value head g.

    Raises:
        ShapeError: an axis or a dtype disagrees.
        KernelError: the forced blocks do not fit into topk.

    Graph: nothing is sized by a host length.
    Numerics: as the two operations that it joins; the choice is the same to the bit.
    """
    if index_q.dim() != 3 or index_k_pages.dim() != 3 or index_q.shape[2] != index_k_pages.shape[2]:
        allowed = f"[num_tokens, num_index_heads, {index_k_pages.shape[-1]}] for these index_k_pages"
        raise shape_fault("choose_blocks", "index_q", index_q, allowed)
    check_addressing("choose_blocks", index_q, index_page_table, req_of_token, positions)
    check_budget("choose_blocks", topk, num_init_blocks, num_local_blocks)
    chosen: torch.Tensor = select("attention/choose_blocks", index_q.device.type).function(
        index_q,
        index_k_pages,
        index_page_table,
        req_of_token,
        positions,
        topk,
        num_init_blocks,
        num_local_blocks,
    )
    return chosen
