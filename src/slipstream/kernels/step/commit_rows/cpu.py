"""Commit on the host: a batch has few rows, and four short reads cost less than a dozen static-shape tensor calls."""

from __future__ import annotations

from torch import Tensor


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
    max_model_len = token_history.shape[1]
    entries = zip(row_of_batch.tolist(), base_positions.tolist(), num_accepted.tolist(), strict=True)
    for index, (row, base, accepted) in enumerate(entries):
        if row < 0:
            continue
        num_computed_tokens[row] = base + accepted + 1
        last_token[row] = emitted[index, accepted]
        end = min(base + accepted + 2, max_model_len)
        token_history[row, base + 1 : end] = emitted[index, : end - base - 1]
