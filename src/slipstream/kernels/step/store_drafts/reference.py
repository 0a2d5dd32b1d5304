"""Definition of storing drafts."""

from __future__ import annotations

from torch import Tensor

from slipstream.kernels.step.placement import batch_of_row, put_rows


def store_drafts(row_of_batch: Tensor, drafts: Tensor, draft_tokens: Tensor) -> None:
    """See the contract."""
    put_rows(draft_tokens, drafts, batch_of_row(row_of_batch, draft_tokens.shape[0]))
