"""`mask_logits` in Triton: one program per ladder row and chunk of tokens."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 4096


@triton.jit
def mask_logits_kernel(logits_ptr, allowed_ptr, out_ptr, vocab_size, num_words, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    token = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_inside = token < vocab_size
    logits = tl.load(logits_ptr + row * vocab_size + token, mask=is_inside, other=0.0)
    word = tl.load(allowed_ptr + row * num_words + token // 32, mask=is_inside, other=0)
    is_allowed = ((word >> (token % 32)) & 1) > 0
    # Added, not filled in: NaN must not be hidden behind -inf.
    tl.store(out_ptr + row * vocab_size + token, logits + tl.where(is_allowed, 0.0, float("-inf")), mask=is_inside)


def mask_logits(logits: Tensor, allowed: Tensor) -> Tensor:
    """See the contract."""
    logits, allowed = logits.contiguous(), allowed.contiguous()
    num_reqs, query_len, vocab_size = logits.shape
    out = torch.empty_like(logits)
    if out.numel():
        block = min(_BLOCK, triton.next_power_of_2(vocab_size))
        grid = (num_reqs * query_len, triton.cdiv(vocab_size, block))
        mask_logits_kernel[grid](logits, allowed, out, vocab_size, allowed.shape[2], BLOCK=block, num_warps=8)
    return out
