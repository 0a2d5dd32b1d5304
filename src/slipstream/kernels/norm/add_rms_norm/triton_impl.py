"""`add_rms_norm` in Triton: one program per row; the sum is rounded before it is normalised, as it is stored."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def add_rms_norm_kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    out_ptr,
    total_ptr,
    x_stride,
    residual_stride,
    hidden_size,
    eps,
    GEMMA: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    is_inside = columns < hidden_size
    x = tl.load(x_ptr + row * x_stride + columns, mask=is_inside, other=0.0).to(tl.float32)
    residual = tl.load(residual_ptr + row * residual_stride + columns, mask=is_inside, other=0.0).to(tl.float32)
    total = (x + residual).to(total_ptr.dtype.element_ty)
    tl.store(total_ptr + row * hidden_size + columns, total, mask=is_inside)
    rows = total.to(tl.float32)
    rows *= tl.rsqrt(tl.sum(rows * rows, 0) / hidden_size + eps)
    weight = tl.load(weight_ptr + columns, mask=is_inside, other=0.0).to(tl.float32)
    scaled = rows + rows * weight if GEMMA else rows * weight
    tl.store(out_ptr + row * hidden_size + columns, scaled.to(out_ptr.dtype.element_ty), mask=is_inside)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float, gemma: bool) -> tuple[Tensor, Tensor]:
    """See the contract."""
    weight = weight.contiguous()
    x = x if x.stride(1) == 1 else x.contiguous()
    residual = residual if residual.stride(1) == 1 else residual.contiguous()
    num_tokens, hidden_size = x.shape
    out = torch.empty((num_tokens, hidden_size), dtype=x.dtype, device=x.device)
    total = torch.empty_like(out)
    block = triton.next_power_of_2(hidden_size)
    if num_tokens:
        add_rms_norm_kernel[(num_tokens,)](
            x,
            residual,
            weight,
            out,
            total,
            x.stride(0),
            residual.stride(0),
            hidden_size,
            eps,
            GEMMA=gemma,
            BLOCK=block,
            num_warps=8 if block >= 4096 else 4,
        )
    return out, total
