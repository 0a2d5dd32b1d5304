"""`bias_logits` in Triton: one program per ladder row and chunk of tokens."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 4096


@triton.jit
def bias_logits_kernel(
    logits_ptr,
    bias_ptr,
    is_end_ptr,
    first_end_ptr,
    bases_ptr,
    out_ptr,
    query_len,
    vocab_size,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    request = row // query_len
    token = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_inside = token < vocab_size
    predicted = tl.load(bases_ptr + request) + row % query_len + 1
    is_early = predicted < tl.load(first_end_ptr + request)
    logits = tl.load(logits_ptr + row * vocab_size + token, mask=is_inside, other=0.0)
    bias = tl.load(bias_ptr + request * vocab_size + token, mask=is_inside, other=0.0)
    is_end = tl.load(is_end_ptr + request * vocab_size + token, mask=is_inside, other=0) != 0
    # Added, not filled in: NaN must not be hidden behind -inf.
    logits += tl.where(is_end & is_early, float("-inf"), bias)
    tl.store(out_ptr + row * vocab_size + token, logits, mask=is_inside)


def bias_logits(
    logits: Tensor, bias: Tensor, is_end_token: Tensor, first_end_position: Tensor, base_positions: Tensor
) -> Tensor:
    """See the contract."""
    first_end_position, base_positions = first_end_position.contiguous(), base_positions.contiguous()
    logits, bias = logits.contiguous(), bias.contiguous()
    num_reqs, query_len, vocab_size = logits.shape
    out = torch.empty_like(logits)
    if out.numel():
        block = min(_BLOCK, triton.next_power_of_2(vocab_size))
        bias_logits_kernel[(num_reqs * query_len, triton.cdiv(vocab_size, block))](
            logits,
            bias,
            is_end_token.contiguous().view(torch.uint8),
            first_end_position,
            base_positions,
            out,
            query_len,
            vocab_size,
            BLOCK=block,
            num_warps=8,
        )
    return out
