"""`commit_rows` in Triton: one program per batch entry writes its row's state."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def commit_rows_kernel(
    rows_ptr,
    bases_ptr,
    accepted_ptr,
    emitted_ptr,
    computed_ptr,
    last_ptr,
    history_ptr,
    emitted_stride,
    history_stride,
    max_model_len,
    QUERY_LEN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    entry = tl.program_id(0).to(tl.int64)
    row = tl.load(rows_ptr + entry)
    if row >= 0:
        base = tl.load(bases_ptr + entry)
        num_accepted = tl.load(accepted_ptr + entry)
        place = tl.arange(0, BLOCK)
        is_emitted = (place < QUERY_LEN) & (place <= num_accepted)
        tokens = tl.load(emitted_ptr + entry * emitted_stride + place, mask=is_emitted, other=0)
        position = base + 1 + place
        tl.store(history_ptr + row * history_stride + position, tokens, mask=is_emitted & (position < max_model_len))
        tl.store(last_ptr + row, tl.load(emitted_ptr + entry * emitted_stride + num_accepted))
        tl.store(computed_ptr + row, base + num_accepted + 1)


def commit_rows(
    row_of_batch: Tensor,
    base_positions: Tensor,
    num_accepted: Tensor,
    emitted: Tensor,
    num_computed_tokens: Tensor,
    last_token: Tensor,
    token_history: Tensor,
) -> None:
    """See the contract."""
    row_of_batch, base_positions, num_accepted = (
        row_of_batch.contiguous(),
        base_positions.contiguous(),
        num_accepted.contiguous(),
    )
    num_reqs, query_len = emitted.shape
    if num_reqs:
        emitted = emitted if emitted.stride(1) == 1 else emitted.contiguous()
        commit_rows_kernel[(num_reqs,)](
            row_of_batch,
            base_positions,
            num_accepted,
            emitted,
            num_computed_tokens,
            last_token,
            token_history,
            emitted.stride(0),
            token_history.stride(0),
            token_history.shape[1],
            QUERY_LEN=query_len,
            BLOCK=triton.next_power_of_2(query_len),
            num_warps=1,
        )
