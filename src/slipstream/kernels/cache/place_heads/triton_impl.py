"""`place_heads` in Triton: one program per token and head, which knows by its number what its head is."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from slipstream.kernels.cache.place_heads.contract import HeadCounts
from slipstream.kernels.cache.write_kv.triton_impl import rounded


@triton.jit
def sum_of_parts(parts_ptr, token, num_tokens, columns, is_inside, WIDTH: tl.constexpr, NUM_SPLITS: tl.constexpr):
    """Return the sum of a token's partial products at some columns, in order of the splits."""
    total = tl.load(parts_ptr + token * WIDTH + columns, mask=is_inside, other=0.0)
    for split in tl.static_range(1, NUM_SPLITS):
        place = (split * num_tokens + token) * WIDTH + columns
        total += tl.load(parts_ptr + place, mask=is_inside, other=0.0)
    return total


@triton.jit(do_not_specialize=["num_tokens"])
def place_heads_kernel(
    parts_ptr,
    weight_ptr,
    rope_ptr,
    positions_ptr,
    slots_ptr,
    index_slots_ptr,
    q_ptr,
    index_q_ptr,
    k_pages_ptr,
    v_pages_ptr,
    index_pages_ptr,
    num_tokens,
    page_stride,
    slot_stride,
    index_page_stride,
    index_slot_stride,
    eps,
    NUM_SPLITS: tl.constexpr,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    NUM_INDEX_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    ROTARY_DIM: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    GEMMA: tl.constexpr,
    BLOCK: tl.constexpr,
    IS_DEPENDENT: tl.constexpr,
):
    if IS_DEPENDENT:
        tl.extra.cuda.gdc_launch_dependents()
    head = tl.program_id(0)
    token = tl.program_id(1).to(tl.int64)
    FIRST_INDEX_QUERY: tl.constexpr = NUM_HEADS + NUM_KV_HEADS
    INDEX_KEY: tl.constexpr = FIRST_INDEX_QUERY + NUM_INDEX_HEADS
    FIRST_VALUE: tl.constexpr = INDEX_KEY + (1 if NUM_INDEX_HEADS > 0 else 0)
    WIDTH: tl.constexpr = (FIRST_VALUE + NUM_KV_HEADS) * HEAD_DIM
    half: tl.constexpr = ROTARY_DIM // 2
    lanes = tl.arange(0, BLOCK)
    is_inside = lanes < HEAD_DIM
    partner = tl.where(lanes < half, lanes + half, tl.where(lanes < ROTARY_DIM, lanes - half, lanes))
    kind = (head >= NUM_HEADS).to(tl.int32)
    kind += (head >= FIRST_INDEX_QUERY).to(tl.int32) + (head >= INDEX_KEY).to(tl.int32)
    is_value = head >= FIRST_VALUE
    # A value has no gain: whichever row is read, it is not used.
    gains = weight_ptr + tl.where(is_value, 0, kind) * HEAD_DIM
    own_gain = tl.load(gains + lanes, mask=is_inside, other=0.0).to(tl.float32)
    other_gain = tl.load(gains + partner, mask=is_inside, other=0.0).to(tl.float32)
    # HAZARD: whatever a kernel of the step wrote may be read only from here on.
    if IS_DEPENDENT:
        tl.extra.cuda.gdc_wait()
    dtype = q_ptr.dtype.element_ty
    first = head * HEAD_DIM
    own = sum_of_parts(parts_ptr, token, num_tokens, first + lanes, is_inside, WIDTH, NUM_SPLITS)
    own = own.to(dtype).to(tl.float32)
    if is_value:
        slot = tl.load(slots_ptr + token)
        if slot >= 0:
            place = slot // PAGE_SIZE * page_stride + slot % PAGE_SIZE * slot_stride
            place += (head - FIRST_VALUE) * HEAD_DIM
            tl.store(v_pages_ptr + place + lanes, rounded(own, 1.0, v_pages_ptr.dtype.element_ty), mask=is_inside)
    else:
        other = sum_of_parts(parts_ptr, token, num_tokens, first + partner, is_inside, WIDTH, NUM_SPLITS)
        other = other.to(dtype).to(tl.float32)
        scale = tl.rsqrt(tl.sum(own * own, 0) / HEAD_DIM + eps)
        own *= scale
        other *= scale
        own = own + own * own_gain if GEMMA else own * own_gain
        other = other + other * other_gain if GEMMA else other * other_gain
        # Padding, position -1, takes row 0.
        row = rope_ptr + tl.maximum(tl.load(positions_ptr + token), 0) * ROTARY_DIM
        is_rotated = lanes < ROTARY_DIM
        angle = tl.where(lanes < half, lanes, lanes - half)
        cosine = tl.load(row + angle, mask=is_rotated, other=1.0).to(tl.float32)
        sine = tl.load(row + half + angle, mask=is_rotated, other=0.0).to(tl.float32)
        turned = own * cosine + tl.where(lanes < half, -other, other) * sine
        result = tl.where(is_rotated, turned, own).to(dtype)
        if head < NUM_HEADS:
            tl.store(q_ptr + (token * NUM_HEADS + head) * HEAD_DIM + lanes, result, mask=is_inside)
        elif head < FIRST_INDEX_QUERY:
            slot = tl.load(slots_ptr + token)
            if slot >= 0:
                place = slot // PAGE_SIZE * page_stride + slot % PAGE_SIZE * slot_stride
                place += (head - NUM_HEADS) * HEAD_DIM
                tl.store(
                    k_pages_ptr + place + lanes, rounded(result, 1.0, k_pages_ptr.dtype.element_ty), mask=is_inside
                )
        elif head < INDEX_KEY:
            place = (token * NUM_INDEX_HEADS + head - FIRST_INDEX_QUERY) * HEAD_DIM
            tl.store(index_q_ptr + place + lanes, result, mask=is_inside)
        else:
            slot = tl.load(index_slots_ptr + token)
            if slot >= 0:
                place = slot // PAGE_SIZE * index_page_stride + slot % PAGE_SIZE * index_slot_stride
                tl.store(
                    index_pages_ptr + place + lanes,
                    rounded(result, 1.0, index_pages_ptr.dtype.element_ty),
                    mask=is_inside,
                )


def place_heads(
    parts: Tensor,
    counts: HeadCounts,
    norm_weight: Tensor,
    eps: float,
    gemma: bool,
    rope_table: Tensor,
    positions: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    slot_mapping: Tensor,
    index_k_pages: Tensor | None,
    index_slot_mapping: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """See the contract. Pages may be views; what one token has in a page lies together."""
    positions, slot_mapping, parts = positions.contiguous(), slot_mapping.contiguous(), parts.contiguous()
    norm_weight = norm_weight.contiguous()
    assert k_pages.stride() == v_pages.stride() and k_pages.stride(2) == k_pages.shape[3] and k_pages.stride(3) == 1
    num_splits, num_tokens, _ = parts.shape
    head_dim, device = norm_weight.shape[1], parts.device
    q = torch.empty((num_tokens, counts.num_heads, head_dim), dtype=norm_weight.dtype, device=device)
    index_q = torch.empty((num_tokens, counts.num_index_heads, head_dim), dtype=norm_weight.dtype, device=device)
    is_device = device.type != "cpu"
    if num_tokens:
        place_heads_kernel[(counts.total, num_tokens)](
            parts,
            norm_weight,
            rope_table,
            positions,
            slot_mapping,
            slot_mapping if index_slot_mapping is None else index_slot_mapping.contiguous(),
            q,
            index_q,
            k_pages,
            v_pages,
            k_pages if index_k_pages is None else index_k_pages,
            num_tokens,
            k_pages.stride(0),
            k_pages.stride(1),
            0 if index_k_pages is None else index_k_pages.stride(0),
            0 if index_k_pages is None else index_k_pages.stride(1),
            eps,
            NUM_SPLITS=num_splits,
            NUM_HEADS=counts.num_heads,
            NUM_KV_HEADS=counts.num_kv_heads,
            NUM_INDEX_HEADS=counts.num_index_heads,
            HEAD_DIM=head_dim,
            ROTARY_DIM=rope_table.shape[1],
            PAGE_SIZE=k_pages.shape[1],
            GEMMA=gemma,
            BLOCK=triton.next_power_of_2(head_dim),
            IS_DEPENDENT=is_device,
            num_warps=1,
            launch_pdl=is_device,
        )
    return q, index_q
