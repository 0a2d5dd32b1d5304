"""`penalise_logits` in Triton: count the text of every request, then change every ladder row's logits.

Counts are integers, so the order in which they are added does not show.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 4096
_SCAN = 1024
_IN_PROMPT = tl.constexpr(1 << 30)


@triton.jit
def count_tokens_kernel(
    history_ptr, bases_ptr, num_prompt_ptr, counts_ptr, history_stride, vocab_size, BLOCK: tl.constexpr
):
    """Add up returned tokens; the bit 2^30 of a count says that the prompt holds the token."""
    request = tl.program_id(0).to(tl.int64)
    base = tl.load(bases_ptr + request)
    num_prompt = tl.load(num_prompt_ptr + request)
    counts = counts_ptr + request * vocab_size
    for start in range(tl.program_id(1) * BLOCK, base + 1, tl.num_programs(1) * BLOCK):
        position = start + tl.arange(0, BLOCK)
        is_known = position <= base
        token = tl.load(history_ptr + request * history_stride + position, mask=is_known, other=0)
        token = tl.minimum(tl.maximum(token, 0), vocab_size - 1)
        is_prompt = position < num_prompt
        tl.atomic_or(counts + token, tl.full((BLOCK,), _IN_PROMPT, tl.int32), mask=is_known & is_prompt)
        tl.atomic_add(counts + token, tl.full((BLOCK,), 1, tl.int32), mask=is_known & (position >= num_prompt))


# Parameters of one request lie at any place in memory, and rows come alone or as ladders: one variant serves all.
@triton.jit(
    do_not_specialize=["query_len", "draft_stride"],
    do_not_specialize_on_alignment=["drafts_ptr", "repetition_ptr", "presence_ptr", "frequency_ptr"],
)
def penalise_logits_kernel(
    logits_ptr,
    counts_ptr,
    drafts_ptr,
    repetition_ptr,
    presence_ptr,
    frequency_ptr,
    out_ptr,
    query_len,
    draft_stride,
    vocab_size,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    request = row // query_len
    token = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_inside = token < vocab_size
    packed = tl.load(counts_ptr + request * vocab_size + token, mask=is_inside, other=0)
    num_returned = packed & (_IN_PROMPT - 1)
    # Draft j is part of the text of rows j and later.
    for place in range(row % query_len):
        num_returned += (tl.load(drafts_ptr + request * draft_stride + place) == token).to(tl.int32)
    is_seen = (packed >= _IN_PROMPT) | (num_returned > 0)
    factor = tl.where(is_seen, tl.load(repetition_ptr + request), 1.0)
    logits = tl.load(logits_ptr + row * vocab_size + token, mask=is_inside, other=0.0)
    scaled = tl.where(logits > 0, tl.div_rn(logits, factor), logits * factor)
    scaled = scaled - tl.load(frequency_ptr + request) * num_returned.to(tl.float32)
    scaled = scaled - tl.where(num_returned > 0, tl.load(presence_ptr + request), 0.0)
    tl.store(out_ptr + row * vocab_size + token, scaled, mask=is_inside)


def penalise_logits(
    logits: Tensor,
    history: Tensor,
    base_positions: Tensor,
    draft_tokens: Tensor,
    num_prompt_tokens: Tensor,
    repetition: Tensor,
    presence: Tensor,
    frequency: Tensor,
) -> Tensor:
    """See the contract."""
    base_positions, num_prompt_tokens = base_positions.contiguous(), num_prompt_tokens.contiguous()
    logits = logits.contiguous()
    num_reqs, query_len, vocab_size = logits.shape
    out = torch.empty_like(logits)
    if not out.numel():
        return out
    history = history if history.stride(1) == 1 else history.contiguous()
    counts = torch.zeros((num_reqs, vocab_size), dtype=torch.int32, device=logits.device)
    scan = min(_SCAN, triton.next_power_of_2(history.shape[1]))
    count_tokens_kernel[(num_reqs, min(16, triton.cdiv(history.shape[1], scan)))](
        history, base_positions, num_prompt_tokens, counts, history.stride(0), vocab_size, BLOCK=scan, num_warps=4
    )
    block = min(_BLOCK, triton.next_power_of_2(vocab_size))
    drafts = draft_tokens.contiguous()
    penalise_logits_kernel[(num_reqs * query_len, triton.cdiv(vocab_size, block))](
        logits,
        counts,
        drafts if drafts.numel() else base_positions,
        repetition.contiguous(),
        presence.contiguous(),
        frequency.contiguous(),
        out,
        query_len,
        query_len - 1,
        vocab_size,
        BLOCK=block,
        num_warps=8,
        # Products and differences are rounded one by one, as on the host: a fused pair would round once.
        enable_fp_fusion=False,
    )
    return out
