"""`store_drafts` in Triton: one program per batch entry."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def store_drafts_kernel(
    rows_ptr, drafts_ptr, state_ptr, drafts_stride, state_stride, DRAFT_LEN: tl.constexpr, BLOCK: tl.constexpr
):
    entry = tl.program_id(0).to(tl.int64)
    row = tl.load(rows_ptr + entry)
    if row >= 0:
        place = tl.arange(0, BLOCK)
        is_draft = place < DRAFT_LEN
        drafts = tl.load(drafts_ptr + entry * drafts_stride + place, mask=is_draft, other=-1)
        tl.store(state_ptr + row * state_stride + place, drafts, mask=is_draft)


def store_drafts(row_of_batch: Tensor, drafts: Tensor, draft_tokens: Tensor) -> None:
    """See the contract."""
    row_of_batch = row_of_batch.contiguous()
    num_reqs, draft_len = drafts.shape
    if num_reqs and draft_len:
        drafts = drafts if drafts.stride(1) == 1 else drafts.contiguous()
        store_drafts_kernel[(num_reqs,)](
            row_of_batch,
            drafts,
            draft_tokens,
            drafts.stride(0),
            draft_tokens.stride(0),
            DRAFT_LEN=draft_len,
            BLOCK=triton.next_power_of_2(draft_len),
            num_warps=1,
        )
