"""Causal attention over all visible tokens of paged keys and values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from slipstream.base.errors import KernelError
from slipstream.kernels.attention.checks import check_addressing, check_kv_pages, check_scales
from slipstream.kernels.select import select

if TYPE_CHECKING:
    from jaxtyping import Float, Int32, Int64


def dense_attend(
    q: Float[Tensor, "num_tokens num_heads head_dim"],
    k_pages: Float[Tensor, "num_pages page_size num_kv_heads head_dim"],
    v_pages: Float[Tensor, "num_pages page_size num_kv_heads head_dim"],
    page_table: Int32[Tensor, "num_reqs max_pages"],
    req_of_token: Int64[Tensor, "num_tokens"],
    positions: Int64[Tensor, "num_tokens"],
    first_visible: int,
    k_scale: float = 1.0,
    v_scale: float = 1.0,
) -> Float[Tensor, "num_tokens num_heads head_dim"]:
    """Return softmax attention of each query over positions first_visible .. its own.

    Args:
        q: [num_tokens, num_heads, head_dim] float32 or bfloat16; head h reads key-value head
            h // (num_heads / num_kv_heads).
        k_pages: [num_pages, page_size, num_kv_heads, head_dim] float32, bfloat16 or float8_e4m3fn.
        v_pages: [num_pages, page_size, num_kv_heads, head_dim].
        page_table: [num_reqs, max_pages] int32; entries past the request's pages are 0.
        req_of_token: [num_tokens] int64; row of the page table.
        positions: [num_tokens] int64; -1 (padding) sees nothing.
        first_visible: first position that exists; 0, or 1 for a layer that stores no row for position 0.
        k_scale: what a stored key times this is; 1 unless pages are float8.
        v_scale: what a stored value times this is; 1 unless pages are float8.

    Returns:
        [num_tokens, num_heads, head_dim] of q's dtype; zeros where nothing is seen.

    Raises:
        ShapeError: an axis or a dtype disagrees.
        KernelError: first_visible is negative.

    Graph: lengths are read on the device.
    Numerics: scale head_dim ** -0.5, products and softmax in float32, one rounding at the end. Keys and values that
        are not seen do not exist: pages may hold NaN there.
    """
    check_kv_pages("dense_attend", q, k_pages, v_pages)
    check_scales("dense_attend", k_pages, k_scale, v_scale)
    check_addressing("dense_attend", q, page_table, req_of_token, positions)
    if first_visible < 0:
        raise KernelError(f"dense_attend: first_visible is {first_visible}, allowed is 0 or more")
    function = select("attention/dense_attend", q.device.type).function
    mixed: torch.Tensor = function(
        q, k_pages, v_pages, page_table, req_of_token, positions, first_visible, k_scale, v_scale
    )
    return mixed
