"""`qk_norm_rope` in Triton: one program per token and head; each lane also reads the element it is rotated with."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def qk_norm_rope_kernel(
    x_ptr,
    weight_ptr,
    kind_ptr,
    rope_ptr,
    positions_ptr,
    out_ptr,
    x_stride_token,
    x_stride_head,
    num_heads,
    eps,
    HEAD_DIM: tl.constexpr,
    ROTARY_DIM: tl.constexpr,
    HAS_NORM: tl.constexpr,
    GEMMA: tl.constexpr,
    BLOCK: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    half: tl.constexpr = ROTARY_DIM // 2
    lanes = tl.arange(0, BLOCK)
    is_inside = lanes < HEAD_DIM
    partner = tl.where(lanes < half, lanes + half, tl.where(lanes < ROTARY_DIM, lanes - half, lanes))
    base = x_ptr + token * x_stride_token + head * x_stride_head
    own = tl.load(base + lanes, mask=is_inside, other=0.0).to(tl.float32)
    other = tl.load(base + partner, mask=is_inside, other=0.0).to(tl.float32)
    if HAS_NORM:
        scale = tl.rsqrt(tl.sum(own * own, 0) / HEAD_DIM + eps)
        gains = weight_ptr + tl.load(kind_ptr + head) * HEAD_DIM
        own_gain = tl.load(gains + lanes, mask=is_inside, other=0.0).to(tl.float32)
        other_gain = tl.load(gains + partner, mask=is_inside, other=0.0).to(tl.float32)
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
    result = tl.where(is_rotated, turned, own)
    place = out_ptr + (token * num_heads + head) * HEAD_DIM + lanes
    tl.store(place, result.to(out_ptr.dtype.element_ty), mask=is_inside)


def qk_norm_rope(
    x: Tensor,
    weight: Tensor | None,
    kind_of_head: Tensor | None,
    eps: float,
    gemma: bool,
    rope_table: Tensor,
    positions: Tensor,
) -> Tensor:
    """See the contract."""
    positions = positions.contiguous()
    x = x if x.stride(2) == 1 else x.contiguous()
    num_tokens, num_heads, head_dim = x.shape
    out = torch.empty((num_tokens, num_heads, head_dim), dtype=x.dtype, device=x.device)
    has_norm = weight is not None and kind_of_head is not None
    if num_tokens:
        qk_norm_rope_kernel[(num_tokens, num_heads)](
            x,
            weight if has_norm else x,
            kind_of_head.contiguous() if kind_of_head is not None else positions,
            rope_table,
            positions,
            out,
            x.stride(0),
            x.stride(1),
            num_heads,
            eps,
            HEAD_DIM=head_dim,
            ROTARY_DIM=rope_table.shape[1],
            HAS_NORM=has_norm,
            GEMMA=gemma,
            BLOCK=triton.next_power_of_2(head_dim),
            num_warps=1,
        )
    return out
