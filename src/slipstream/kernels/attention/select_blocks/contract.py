"""Choose blocks by score. Not here: computing the scores (`index_score`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from slipstream.base.errors import KernelError
from slipstream.kernels.faults import shape_fault
from slipstream.kernels.select import select

if TYPE_CHECKING:
    from jaxtyping import Float32, Int32, Int64


def select_blocks(
    scores: Float32[Tensor, "num_tokens num_index_heads max_pages"],
    positions: Int64[Tensor, "num_tokens"],
    page_size: int,
    topk: int,
    num_init_blocks: int,
    num_local_blocks: int,
) -> Int32[Tensor, "num_tokens num_kv_heads topk"]:
    """Return the blocks that each token and key-value head attends to.

    Forced blocks count against topk. Where local and initial blocks do not both fit into the choice of other
    implementations the local block wins; here both always fit, and only their order among equals is decided.

    Args:
        scores: [num_tokens, num_index_heads, max_pages] float32; index head g chooses for key-value head g.
        positions: [num_tokens] int64; block position // page_size is the last that may be chosen; -1 chooses nothing.
        page_size: tokens of a block.
        topk: blocks per token and head.
        num_init_blocks: blocks 0 .. num_init_blocks - 1 are always chosen where visible.
        num_local_blocks: the token's own block and those before it, so many in all, are always chosen.

    Returns:
        [num_tokens, num_kv_heads, topk] int32 logical block ids, ascending, then -1. With no more than topk visible
        blocks, all of them.

    Raises:
        ShapeError: an axis or a dtype disagrees.
        KernelError: the forced blocks do not fit into topk.

    Numerics: a total order, score descending and then block id ascending, in 64-bit integers; -0.0 equals +0.0, and
        NaN counts as -1e30.
    Source: config fields sparse_topk_blocks, sparse_init_block, sparse_local_block.
    """
    if scores.dim() != 3 or scores.dtype != torch.float32:
        raise shape_fault("select_blocks", "scores", scores, "[num_tokens, num_index_heads, max_pages] float32")
    if positions.shape != scores.shape[:1] or positions.dtype != torch.int64:
        raise shape_fault("select_blocks", "positions", positions, f"[{scores.shape[0]}] int64")
    check_budget("select_blocks", topk, num_init_blocks, num_local_blocks)
    function = select("attention/select_blocks", scores.device.type).function
    chosen: torch.Tensor = function(scores, positions, page_size, topk, num_init_blocks, num_local_blocks)
    return chosen


def check_budget(operation: str, topk: int, num_init_blocks: int, num_local_blocks: int) -> None:
    """Raise KernelError unless the forced blocks fit into topk."""
    if min(num_init_blocks, num_local_blocks) < 0 or topk < 1 or num_init_blocks + num_local_blocks > topk:
        raise KernelError(
            f"{operation}: topk {topk}, num_init_blocks {num_init_blocks}, num_local_blocks {num_local_blocks}; "
            "allowed is topk >= 1 and forced counts >= 0 that together fit into topk"
        )
