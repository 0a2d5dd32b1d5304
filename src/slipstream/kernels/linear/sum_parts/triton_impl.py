"""`sum_parts` in Triton: one program per row and tile of columns; all parts are on their way before the first sum."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 512


@triton.jit
def summed_parts(parts_ptr, part_stride, place, is_inside, NUM_SPLITS: tl.constexpr):
    """Return the ordered sum of what every split holds at some places; for any kernel that consumes parts."""
    parts = ()
    for split in tl.static_range(NUM_SPLITS):
        parts += (tl.load(parts_ptr + split * part_stride + place, mask=is_inside, other=0.0),)
    total = parts[0]
    for split in tl.static_range(1, NUM_SPLITS):
        total += parts[split]
    return total


@triton.jit(do_not_specialize=["part_stride"])
def sum_parts_kernel(
    parts_ptr,
    out_ptr,
    part_stride,
    out_features,
    NUM_SPLITS: tl.constexpr,
    BLOCK: tl.constexpr,
    IS_DEPENDENT: tl.constexpr,
):
    if IS_DEPENDENT:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_inside = columns < out_features
    place = row * out_features + columns
    total = summed_parts(parts_ptr, part_stride, place, is_inside, NUM_SPLITS)
    tl.store(out_ptr + place, total.to(out_ptr.dtype.element_ty), mask=is_inside)


def sum_parts(parts: Tensor, dtype: torch.dtype) -> Tensor:
    """See the contract."""
    parts = parts.contiguous()
    num_splits, num_tokens, out_features = parts.shape
    out = torch.empty((num_tokens, out_features), dtype=dtype, device=parts.device)
    is_device = parts.device.type != "cpu"
    if out.numel():
        block = min(_BLOCK, triton.next_power_of_2(out_features))
        sum_parts_kernel[(num_tokens, triton.cdiv(out_features, block))](
            parts,
            out,
            num_tokens * out_features,
            out_features,
            NUM_SPLITS=num_splits,
            BLOCK=block,
            IS_DEPENDENT=is_device,
            num_warps=4,
            launch_pdl=is_device,
        )
    return out
