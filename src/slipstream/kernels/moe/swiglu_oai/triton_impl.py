"""`swiglu_oai` in Triton: one program per row and tile of columns."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024


@triton.jit
def gated(gate, up, alpha, limit):
    """Return (up + 1) * gate * sigmoid(alpha * gate) of float32 values, clamped first."""
    # HAZARD: the gate is clamped from above only. NaN must stay NaN, which minimum and maximum drop.
    gate = tl.where(gate > limit, limit, gate)
    up = tl.where(up > limit, limit, tl.where(up < -limit, -limit, up))
    weighted = gate / (1.0 + tl.exp(-alpha * gate))
    return weighted + weighted * up


@triton.jit
def swiglu_oai_kernel(gate_up_ptr, out_ptr, stride, size, alpha, limit, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_inside = columns < size
    gate = tl.load(gate_up_ptr + row * stride + columns, mask=is_inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up_ptr + row * stride + size + columns, mask=is_inside, other=0.0).to(tl.float32)
    result = gated(gate, up, alpha, limit).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + row * size + columns, result, mask=is_inside)


def swiglu_oai(gate_up: Tensor, alpha: float, limit: float) -> Tensor:
    """See the contract."""
    gate_up = gate_up if gate_up.stride(1) == 1 else gate_up.contiguous()
    num_tokens, size = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty((num_tokens, size), dtype=gate_up.dtype, device=gate_up.device)
    if out.numel():
        block = min(_BLOCK, triton.next_power_of_2(size))
        grid = (num_tokens, triton.cdiv(size, block))
        swiglu_oai_kernel[grid](gate_up, out, gate_up.stride(0), size, alpha, limit, BLOCK=block, num_warps=4)
    return out
