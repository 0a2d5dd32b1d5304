"""Attention over chosen blocks. Not here: choosing them (`choose_blocks`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from slipstream.kernels.attention.checks import check_addressing, check_kv_pages, check_scales
from slipstream.kernels.faults import shape_fault
from slipstream.kernels.select import select

if TYPE_CHECKING:
    from jaxtyping import Float, Int32, Int64


def sparse_attend(
    q: Float[Tensor, "num_tokens num_heads head_dim"],
    k_pages: Float[Tensor, "num_pages page_size num_kv_heads head_dim"],
    v_pages: Float[Tensor, "num_pages page_size num_kv_heads head_dim"],
    page_table: Int32[Tensor, "num_reqs max_pages"],
    req_of_token: Int64[Tensor, "num_tokens"],
    positions: Int64[Tensor, "num_tokens"],
    topk_blocks: Int32[Tensor, "num_tokens num_kv_heads topk"],
    k_scale: float = 1.0,
    v_scale: float = 1.0,
) -> Float[Tensor, "num_tokens num_heads head_dim"]:
    """Return softmax attention of each query over the visible tokens of its chosen blocks.

    Args:
        q: [num_tokens, num_heads, head_dim] float32 or bfloat16; head h reads key-value head
            h // (num_heads / num_kv_heads).
        k_pages: [num_pages, page_size, num_kv_heads, head_dim] float32, bfloat16 or float8_e4m3fn.
        v_pages: [num_pages, page_size, num_kv_heads, head_dim].
        page_table: [num_reqs, max_pages] int32; column b holds the page of logical block b.
        req_of_token: [num_tokens] int64; row of the page table.
        positions: [num_tokens] int64; a token sees positions 0 .. its own; -1 (padding) sees nothing.
        topk_blocks: [num_tokens, num_kv_heads, topk] int32 logical block ids in any order, each at most once;
            -1 is never looked up.
        k_scale: what a stored key times this is; 1 unless pages are float8.
        v_scale: what a stored value times this is; 1 unless pages are float8.

    Returns:
        [num_tokens, num_heads, head_dim] of q's dtype; zeros where nothing is seen.

    Raises:
        ShapeError: an axis or a dtype disagrees.

    Graph: lengths are read on the device.
    Numerics: scale head_dim ** -0.5, products and softmax in float32, one rounding at the end. Keys and values that
        are not seen do not exist: pages may hold NaN there.
    """
    check_kv_pages("sparse_attend", q, k_pages, v_pages)
    check_scales("sparse_attend", k_pages, k_scale, v_scale)
    check_addressing("sparse_attend", q, page_table, req_of_token, positions)
    # HAZARD: token-major. Head-major lists have the same shape whenever num_tokens equals num_kv_heads.
    if topk_blocks.dim() != 3 or topk_blocks.shape[0] != q.shape[0] or topk_blocks.shape[1] != k_pages.shape[2]:
        allowed = f"[{q.shape[0]}, {k_pages.shape[2]}, topk] int32, token-major"
        raise shape_fault("sparse_attend", "topk_blocks", topk_blocks, allowed)
    if topk_blocks.dtype != torch.int32:
        raise shape_fault("sparse_attend", "topk_blocks", topk_blocks, "int32")
    function = select("attention/sparse_attend", q.device.type).function
    mixed: torch.Tensor = function(
        q, k_pages, v_pages, page_table, req_of_token, positions, topk_blocks, k_scale, v_scale
    )
    return mixed
