"""`sum_add_rms_norm` in Triton: one program per row, which reads the gain before the preceding kernel has ended."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit(do_not_specialize=["num_tokens"])
def sum_add_rms_norm_kernel(
    parts_ptr,
    extra_ptr,
    residual_ptr,
    weight_ptr,
    out_ptr,
    total_ptr,
    num_tokens,
    extra_stride,
    residual_stride,
    hidden_size,
    eps,
    NUM_SPLITS: tl.constexpr,
    HAS_EXTRA: tl.constexpr,
    GEMMA: tl.constexpr,
    BLOCK: tl.constexpr,
    IS_DEPENDENT: tl.constexpr,
):
    if IS_DEPENDENT:
        tl.extra.cuda.gdc_launch_dependents()
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    is_inside = columns < hidden_size
    weight = tl.load(weight_ptr + columns, mask=is_inside, other=0.0).to(tl.float32)
    # HAZARD: whatever a kernel of the step wrote may be read only from here on, however long ago it was launched.
    if IS_DEPENDENT:
        tl.extra.cuda.gdc_wait()
    dtype = total_ptr.dtype.element_ty
    residual = tl.load(residual_ptr + row * residual_stride + columns, mask=is_inside, other=0.0).to(tl.float32)
    output = tl.load(parts_ptr + row * hidden_size + columns, mask=is_inside, other=0.0)
    for split in tl.static_range(1, NUM_SPLITS):
        place = (split * num_tokens + row) * hidden_size + columns
        output += tl.load(parts_ptr + place, mask=is_inside, other=0.0)
    output = output.to(dtype).to(tl.float32)
    if HAS_EXTRA:
        extra = tl.load(extra_ptr + row * extra_stride + columns, mask=is_inside, other=0.0).to(tl.float32)
        output = (output + extra).to(dtype).to(tl.float32)
    total = (output + residual).to(dtype)
    tl.store(total_ptr + row * hidden_size + columns, total, mask=is_inside)
    rows = total.to(tl.float32)
    rows *= tl.rsqrt(tl.sum(rows * rows, 0) / hidden_size + eps)
    scaled = rows + rows * weight if GEMMA else rows * weight
    tl.store(out_ptr + row * hidden_size + columns, scaled.to(out_ptr.dtype.element_ty), mask=is_inside)


def sum_add_rms_norm(
    parts: Tensor, extra: Tensor | None, residual: Tensor, weight: Tensor, eps: float, gemma: bool
) -> tuple[Tensor, Tensor]:
    """See the contract."""
    weight, parts = weight.contiguous(), parts.contiguous()
    residual = residual if residual.stride(1) == 1 else residual.contiguous()
    if extra is not None and extra.stride(1) != 1:
        extra = extra.contiguous()
    num_splits, num_tokens, hidden_size = parts.shape
    out = torch.empty((num_tokens, hidden_size), dtype=residual.dtype, device=residual.device)
    total = torch.empty_like(out)
    block = triton.next_power_of_2(hidden_size)
    is_device = residual.device.type != "cpu"
    if num_tokens:
        sum_add_rms_norm_kernel[(num_tokens,)](
            parts,
            residual if extra is None else extra,
            residual,
            weight,
            out,
            total,
            num_tokens,
            0 if extra is None else extra.stride(0),
            residual.stride(0),
            hidden_size,
            eps,
            NUM_SPLITS=num_splits,
            HAS_EXTRA=extra is not None,
            GEMMA=gemma,
            BLOCK=block,
            IS_DEPENDENT=is_device,
            num_warps=8 if block >= 4096 else 4,
            launch_pdl=is_device,
        )
    return out, total
