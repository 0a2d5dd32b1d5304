"""Definition of the places of draft rows."""

from __future__ import annotations

import torch
from torch import Tensor


def place_rows(
    token_ids: Tensor,
    first_positions: Tensor,
    num_live: Tensor,
    max_seq_lens: Tensor,
    page_table: Tensor,
    page_size: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """See the contract; returns token ids, positions, rope positions and slots."""
    offsets = torch.arange(token_ids.shape[1], device=token_ids.device)[None, :]
    positions = first_positions[:, None] + offsets
    page_index = positions.div(page_size, rounding_mode="floor")
    is_live = (offsets < num_live[:, None]) & (positions >= 1) & (positions < max_seq_lens[:, None])
    is_live &= page_index < page_table.shape[1]
    pages = page_table.long().gather(1, torch.where(is_live, page_index, 0))
    is_live &= pages > 0
    slots = pages * page_size + positions % page_size
    return (
        torch.where(is_live, token_ids, 0),
        torch.where(is_live, positions, -1),
        torch.where(is_live, positions - 1, 0),
        torch.where(is_live, slots, -1),
    )
