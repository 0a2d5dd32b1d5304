"""`place_rows` in Triton: one program per request."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def place_rows_kernel(
    tokens_ptr,
    first_ptr,
    live_ptr,
    limit_ptr,
    table_ptr,
    out_tokens_ptr,
    out_positions_ptr,
    out_rope_ptr,
    out_slots_ptr,
    tokens_stride,
    table_stride,
    max_pages,
    QUERY_LEN: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    request = tl.program_id(0).to(tl.int64)
    row = tl.arange(0, BLOCK)
    is_row = row < QUERY_LEN
    position = tl.load(first_ptr + request) + row
    is_live = is_row & (row < tl.load(live_ptr + request)) & (position >= 1)
    is_live = is_live & (position < tl.load(limit_ptr + request)) & (position // PAGE_SIZE < max_pages)
    page = tl.load(table_ptr + request * table_stride + position // PAGE_SIZE, mask=is_live, other=0).to(tl.int64)
    is_live = is_live & (page > 0)
    token = tl.load(tokens_ptr + request * tokens_stride + row, mask=is_live, other=0)
    place = request * QUERY_LEN + row
    tl.store(out_tokens_ptr + place, token, mask=is_row)
    tl.store(out_positions_ptr + place, tl.where(is_live, position, -1), mask=is_row)
    tl.store(out_rope_ptr + place, tl.where(is_live, position - 1, 0), mask=is_row)
    tl.store(out_slots_ptr + place, tl.where(is_live, page * PAGE_SIZE + position % PAGE_SIZE, -1), mask=is_row)


def place_rows(
    token_ids: Tensor,
    first_positions: Tensor,
    num_live: Tensor,
    max_seq_lens: Tensor,
    page_table: Tensor,
    page_size: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """See the reference."""
    first_positions, num_live, max_seq_lens = (
        first_positions.contiguous(),
        num_live.contiguous(),
        max_seq_lens.contiguous(),
    )
    num_reqs, query_len = token_ids.shape
    outs = [torch.empty((num_reqs, query_len), dtype=torch.int64, device=token_ids.device) for _ in range(4)]
    if num_reqs:
        token_ids = token_ids if token_ids.stride(1) == 1 else token_ids.contiguous()
        place_rows_kernel[(num_reqs,)](
            token_ids,
            first_positions,
            num_live,
            max_seq_lens,
            page_table,
            *outs,
            token_ids.stride(0),
            page_table.stride(0),
            page_table.shape[1],
            QUERY_LEN=query_len,
            PAGE_SIZE=page_size,
            BLOCK=triton.next_power_of_2(query_len),
            num_warps=1,
        )
    return outs[0], outs[1], outs[2], outs[3]
