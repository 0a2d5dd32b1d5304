"""Definition of a commit."""

from __future__ import annotations

import torch
from torch import Tensor

from slipstream.kernels.step.placement import batch_of_row, put_rows


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
    owner = batch_of_row(row_of_batch, num_computed_tokens.shape[0])
    put_rows(num_computed_tokens, base_positions + num_accepted + 1, owner)
    put_rows(last_token, emitted.gather(1, num_accepted[:, None])[:, 0], owner)

    offsets = torch.arange(emitted.shape[1], device=emitted.device)[None, :]
    positions = base_positions[:, None] + 1 + offsets
    is_written = (row_of_batch >= 0)[:, None] & (offsets <= num_accepted[:, None])
    is_written &= positions < token_history.shape[1]
    # INVARIANT: a commit never changes position 0 (it is a prompt token), so an entry that must not be written may
    # store position 0's own value there: no write is conditional and none conflicts.
    rows = row_of_batch.clamp(min=0)[:, None].expand_as(positions)
    places = torch.where(is_written, positions, 0)
    token_history[rows, places] = torch.where(is_written, emitted, token_history[rows, torch.zeros_like(places)])
