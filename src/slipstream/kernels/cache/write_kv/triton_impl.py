"""`write_kv` in Triton: one program per token writes its keys, values and index key."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def rounded(row, scale, dtype: tl.constexpr):
    """Return a row as pages of a dtype store it: float8 divided by the scale and saturated, NaN kept."""
    if dtype == tl.float8e4nv:
        wide = tl.div_rn(row.to(tl.float32), scale)
        wide = tl.where(wide > 448.0, 448.0, tl.where(wide < -448.0, -448.0, wide))
        return wide.to(dtype)
    else:
        return row.to(dtype)


@triton.jit(do_not_specialize=["k_scale", "v_scale"])
def write_kv_kernel(
    k_ptr,
    v_ptr,
    k_pages_ptr,
    v_pages_ptr,
    slots_ptr,
    index_k_ptr,
    index_pages_ptr,
    index_slots_ptr,
    k_stride_token,
    k_stride_head,
    v_stride_token,
    v_stride_head,
    index_stride,
    page_stride,
    slot_stride,
    index_page_stride,
    index_slot_stride,
    k_scale,
    v_scale,
    PAGE_SIZE: tl.constexpr,
    NUM_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    INDEX_DIM: tl.constexpr,
    BLOCK: tl.constexpr,
    INDEX_BLOCK: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    row: tl.constexpr = NUM_HEADS * HEAD_DIM
    slot = tl.load(slots_ptr + token)
    if slot >= 0:
        lanes = tl.arange(0, BLOCK)
        is_inside = lanes < row
        head, lane = lanes // HEAD_DIM, lanes % HEAD_DIM
        k = tl.load(k_ptr + token * k_stride_token + head * k_stride_head + lane, mask=is_inside, other=0.0)
        v = tl.load(v_ptr + token * v_stride_token + head * v_stride_head + lane, mask=is_inside, other=0.0)
        place = slot // PAGE_SIZE * page_stride + slot % PAGE_SIZE * slot_stride
        tl.store(k_pages_ptr + place + lanes, rounded(k, k_scale, k_pages_ptr.dtype.element_ty), mask=is_inside)
        tl.store(v_pages_ptr + place + lanes, rounded(v, v_scale, v_pages_ptr.dtype.element_ty), mask=is_inside)
    if INDEX_DIM > 0:
        index_slot = tl.load(index_slots_ptr + token)
        if index_slot >= 0:
            columns = tl.arange(0, INDEX_BLOCK)
            is_used = columns < INDEX_DIM
            key = tl.load(index_k_ptr + token * index_stride + columns, mask=is_used, other=0.0)
            place = index_slot // PAGE_SIZE * index_page_stride + index_slot % PAGE_SIZE * index_slot_stride
            key = rounded(key, 1.0, index_pages_ptr.dtype.element_ty)
            tl.store(index_pages_ptr + place + columns, key, mask=is_used)


def write_kv(
    k: Tensor,
    v: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    slot_mapping: Tensor,
    index_k: Tensor | None,
    index_k_pages: Tensor | None,
    index_slot_mapping: Tensor | None,
    k_scale: float = 1.0,
    v_scale: float = 1.0,
) -> None:
    """See the contract. Pages may be views; what one token has in a page lies together."""
    slot_mapping = slot_mapping.contiguous()
    assert k_pages.stride() == v_pages.stride() and k_pages.stride(2) == k_pages.shape[3] and k_pages.stride(3) == 1
    num_tokens, num_heads, head_dim = k.shape
    if not num_tokens:
        return
    k = k if k.stride(2) == 1 else k.contiguous()
    v = v if v.stride(2) == 1 else v.contiguous()
    index_dim = 0
    if index_k is not None:
        index_k = index_k if index_k.stride(1) == 1 else index_k.contiguous()
        index_dim = index_k.shape[1]
    write_kv_kernel[(num_tokens,)](
        k,
        v,
        k_pages,
        v_pages,
        slot_mapping,
        k if index_k is None else index_k,
        k_pages if index_k_pages is None else index_k_pages,
        slot_mapping if index_slot_mapping is None else index_slot_mapping.contiguous(),
        k.stride(0),
        k.stride(1),
        v.stride(0),
        v.stride(1),
        0 if index_k is None else index_k.stride(0),
        k_pages.stride(0),
        k_pages.stride(1),
        0 if index_k_pages is None else index_k_pages.stride(0),
        0 if index_k_pages is None else index_k_pages.stride(1),
        k_scale,
        v_scale,
        PAGE_SIZE=k_pages.shape[1],
        NUM_HEADS=num_heads,
        HEAD_DIM=head_dim,
        INDEX_DIM=index_dim,
        BLOCK=triton.next_power_of_2(num_heads * head_dim),
        INDEX_BLOCK=triton.next_power_of_2(max(index_dim, 1)),
        num_warps=4,
    )
