"""`rms_norm` in Triton: one program per row, the row in registers."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def rms_norm_kernel(
    x_ptr,
    weight_ptr,
    out_ptr,
    x_stride,
    hidden_size,
    eps,
    GEMMA: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    is_inside = columns < hidden_size
    x = tl.load(x_ptr + row * x_stride + columns, mask=is_inside, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + columns, mask=is_inside, other=0.0).to(tl.float32)
    rows = x * tl.rsqrt(tl.sum(x * x, 0) / hidden_size + eps)
    scaled = rows + rows * weight if GEMMA else rows * weight
    tl.store(out_ptr + row * hidden_size + columns, scaled.to(out_ptr.dtype.element_ty), mask=is_inside)


def rms_norm(x: Tensor, weight: Tensor, eps: float, gemma: bool) -> Tensor:
    """See the contract."""
    weight = weight.contiguous()
    num_tokens, hidden_size = x.shape
    out = torch.empty((num_tokens, hidden_size), dtype=x.dtype, device=x.device)
    block = triton.next_power_of_2(hidden_size)
    if num_tokens:
        rms_norm_kernel[(num_tokens,)](
            x if x.stride(1) == 1 else x.contiguous(),
            weight,
            out,
            x.stride(0) if x.stride(1) == 1 else hidden_size,
            hidden_size,
            eps,
            GEMMA=gemma,
            BLOCK=block,
            num_warps=8 if block >= 4096 else 4,
        )
    return out
