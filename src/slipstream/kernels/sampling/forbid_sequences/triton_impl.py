"""`forbid_sequences` in Triton: a copy of the logits; a program per row and sequence strikes out its last token."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def forbid_sequences_kernel(
    out_ptr,
    sequences_ptr,
    history_ptr,
    bases_ptr,
    drafts_ptr,
    num_prompt_ptr,
    query_len,
    vocab_size,
    num_sequences,
    history_stride,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    request, place = row // query_len, row % query_len
    sequence = sequences_ptr + (request * num_sequences + tl.program_id(1)) * WIDTH
    last = tl.load(sequence + WIDTH - 1)
    if last >= 0:
        base = tl.load(bases_ptr + request)
        column = tl.arange(0, BLOCK)
        is_used = column < WIDTH - 1
        wanted = tl.load(sequence + column, mask=is_used, other=-1)
        # What stands before the token that this row predicts, oldest first.
        offset = place + 2 - WIDTH + column
        position = base + offset
        is_text = is_used & (wanted >= 0)
        known = tl.load(
            history_ptr + request * history_stride + position, mask=is_text & (offset < 1) & (position >= 0), other=-1
        )
        guessed = tl.load(drafts_ptr + request * (query_len - 1) + offset - 1, mask=is_text & (offset >= 1), other=-1)
        text = tl.where(offset >= 1, guessed, known)
        agrees = (wanted == text) & (position >= tl.load(num_prompt_ptr + request))
        if tl.sum((is_text & (agrees == 0)).to(tl.int32), 0) == 0:
            at = out_ptr + row * vocab_size + last
            # Programs of one row may strike out the same token: all write the same value. NaN must not be hidden.
            tl.store(at, tl.load(at) + float("-inf"))


def forbid_sequences(
    logits: Tensor,
    sequences: Tensor,
    history: Tensor,
    base_positions: Tensor,
    draft_tokens: Tensor,
    num_prompt_tokens: Tensor,
) -> Tensor:
    """See the contract."""
    base_positions, num_prompt_tokens = base_positions.contiguous(), num_prompt_tokens.contiguous()
    out = logits.clone(memory_format=torch.contiguous_format)
    num_reqs, query_len, vocab_size = logits.shape
    num_sequences, width = sequences.shape[1:]
    if out.numel() and num_sequences:
        drafts = draft_tokens.contiguous()
        forbid_sequences_kernel[(num_reqs * query_len, num_sequences)](
            out,
            sequences.contiguous(),
            history if history.stride(1) == 1 else history.contiguous(),
            base_positions,
            drafts if drafts.numel() else base_positions,
            num_prompt_tokens,
            query_len,
            vocab_size,
            num_sequences,
            history.stride(0) if history.stride(1) == 1 else history.shape[1],
            WIDTH=width,
            BLOCK=triton.next_power_of_2(width),
            num_warps=1,
        )
    return out
