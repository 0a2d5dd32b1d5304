"""`verify_chain` in Triton: one program per request counts the drafts before the first that the target did not draw."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def verify_chain_kernel(draws_ptr, drafts_ptr, out_ptr, draft_stride, DRAFT_LEN: tl.constexpr, BLOCK: tl.constexpr):
    request = tl.program_id(0).to(tl.int64)
    place = tl.arange(0, BLOCK)
    is_draft = place < DRAFT_LEN
    draft = tl.load(drafts_ptr + request * draft_stride + place, mask=is_draft, other=-1)
    draw = tl.load(draws_ptr + request * (DRAFT_LEN + 1) + place, mask=is_draft, other=-2)
    is_refused = (draft < 0) | (draft != draw)
    tl.store(out_ptr + request, tl.min(tl.where(is_refused, place, DRAFT_LEN), 0).to(tl.int64))


def verify_chain(draws: Tensor, draft_tokens: Tensor) -> Tensor:
    """See the contract."""
    num_reqs, draft_len = draft_tokens.shape
    out = torch.zeros((num_reqs,), dtype=torch.int64, device=draws.device)
    if num_reqs and draft_len:
        drafts = draft_tokens if draft_tokens.stride(1) == 1 else draft_tokens.contiguous()
        verify_chain_kernel[(num_reqs,)](
            draws.contiguous(),
            drafts,
            out,
            drafts.stride(0),
            DRAFT_LEN=draft_len,
            BLOCK=triton.next_power_of_2(draft_len + 1),
            num_warps=1,
        )
    return out
