"""Write batch entries into rows with static shapes, skipping padding entries explicitly."""

from __future__ import annotations

import torch
from torch import Tensor


def batch_of_row(row_of_batch: Tensor, max_rows: int) -> Tensor:
    """Return [max_rows] int64: the batch entry that owns each row in this step, -1 for none.

    Args:
        row_of_batch: [num_reqs] int64; -1 = padding.
        max_rows: number of rows.
    """
    entries = torch.arange(row_of_batch.shape[0], device=row_of_batch.device)
    # Padding entries land in one spare place past the rows, which is cut off: slot -1 never wraps to the last row.
    owner = entries.new_full((max_rows + 1,), -1)
    owner.scatter_(0, torch.where(row_of_batch < 0, max_rows, row_of_batch), entries)
    return owner[:max_rows]


def put_rows(state: Tensor, values: Tensor, owner: Tensor) -> None:
    """Replace, in place, the state of every owned row.

    Args:
        state: [max_rows, ...]; in place.
        values: [num_reqs, ...]; same trailing axes and dtype.
        owner: [max_rows] int64; from `batch_of_row`.
    """
    if values.shape[0] == 0:
        return
    is_owned = (owner >= 0).view(-1, *[1] * (state.dim() - 1))
    state.copy_(torch.where(is_owned, values[owner.clamp(min=0)], state))
