"""`sum_swiglu_oai` in Triton: one program per row and tile of columns."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from slipstream.kernels.moe.swiglu_oai.triton_impl import gated

_BLOCK = 256


@triton.jit(do_not_specialize=["num_tokens"])
def sum_swiglu_oai_kernel(
    parts_ptr,
    out_ptr,
    num_tokens,
    size,
    alpha,
    limit,
    NUM_SPLITS: tl.constexpr,
    BLOCK: tl.constexpr,
    IS_DEPENDENT: tl.constexpr,
):
    if IS_DEPENDENT:
        tl.extra.cuda.gdc_launch_dependents()
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_inside = columns < size
    # HAZARD: whatever a kernel of the step wrote may be read only from here on.
    if IS_DEPENDENT:
        tl.extra.cuda.gdc_wait()
    first = row * 2 * size + columns
    gate = tl.load(parts_ptr + first, mask=is_inside, other=0.0)
    up = tl.load(parts_ptr + first + size, mask=is_inside, other=0.0)
    for split in tl.static_range(1, NUM_SPLITS):
        place = first + num_tokens.to(tl.int64) * split * 2 * size
        gate += tl.load(parts_ptr + place, mask=is_inside, other=0.0)
        up += tl.load(parts_ptr + place + size, mask=is_inside, other=0.0)
    dtype = out_ptr.dtype.element_ty
    result = gated(gate.to(dtype).to(tl.float32), up.to(dtype).to(tl.float32), alpha, limit)
    tl.store(out_ptr + row * size + columns, result.to(dtype), mask=is_inside)


def sum_swiglu_oai(parts: Tensor, alpha: float, limit: float) -> Tensor:
    """See the contract."""
    parts = parts.contiguous()
    num_splits, num_tokens, width = parts.shape
    size = width // 2
    out = torch.empty((num_tokens, size), dtype=torch.bfloat16, device=parts.device)
    is_device = parts.device.type != "cpu"
    if out.numel():
        block = min(_BLOCK, triton.next_power_of_2(size))
        sum_swiglu_oai_kernel[(num_tokens, triton.cdiv(size, block))](
            parts,
            out,
            num_tokens,
            size,
            alpha,
            limit,
            NUM_SPLITS=num_splits,
            BLOCK=block,
            IS_DEPENDENT=is_device,
            num_warps=4,
            launch_pdl=is_device,
        )
    return out
