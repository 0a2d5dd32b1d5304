"""`ngram_match` in Triton: one program per request scores every earlier ending and keeps the best."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024


@triton.jit
def ngram_match_kernel(
    history_ptr,
    last_ptr,
    out_ptr,
    history_stride,
    max_model_len,
    NGRAM_MAX: tl.constexpr,
    NGRAM_MIN: tl.constexpr,
    DRAFT_LEN: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_DRAFTS: tl.constexpr,
):
    request = tl.program_id(0).to(tl.int64)
    last = tl.load(last_ptr + request)
    is_valid = (last >= 0) & (last < max_model_len)
    last = tl.where(is_valid, last, 0)
    history = history_ptr + request * history_stride
    lanes = tl.arange(0, BLOCK)
    best = tl.full((), -1, tl.int64)
    for start in range(0, last, BLOCK):
        end = start + lanes
        is_equal = end < last
        length = tl.zeros((BLOCK,), tl.int64)
        for back in tl.static_range(NGRAM_MAX):
            is_equal = is_equal & (end >= back) & (last >= back)
            wanted = tl.load(history + tl.maximum(last - back, 0))
            is_equal = is_equal & (tl.load(history + end - back, mask=is_equal, other=-1) == wanted)
            length += is_equal.to(tl.int64)
        # Longest first, then most recent: one key orders both.
        key = tl.where(length >= NGRAM_MIN, length * max_model_len + end, -1)
        best = tl.maximum(best, tl.max(key, 0))
    drafts = tl.arange(0, BLOCK_DRAFTS)
    source = best % max_model_len + 1 + drafts
    is_proposed = (best >= 0) & (source <= last) & is_valid & (drafts < DRAFT_LEN)
    token = tl.load(history + source, mask=is_proposed, other=-1)
    tl.store(out_ptr + request * DRAFT_LEN + drafts, token, mask=drafts < DRAFT_LEN)


def ngram_match(history: Tensor, last_positions: Tensor, ngram_max: int, ngram_min: int, draft_len: int) -> Tensor:
    """See the contract."""
    last_positions = last_positions.contiguous()
    num_reqs, max_model_len = history.shape
    out = torch.empty((num_reqs, draft_len), dtype=torch.int64, device=history.device)
    if out.numel():
        history = history if history.stride(1) == 1 else history.contiguous()
        ngram_match_kernel[(num_reqs,)](
            history,
            last_positions,
            out,
            history.stride(0),
            max_model_len,
            NGRAM_MAX=ngram_max,
            NGRAM_MIN=ngram_min,
            DRAFT_LEN=draft_len,
            BLOCK=min(_BLOCK, triton.next_power_of_2(max_model_len)),
            BLOCK_DRAFTS=triton.next_power_of_2(draft_len),
            num_warps=4,
        )
    return out
