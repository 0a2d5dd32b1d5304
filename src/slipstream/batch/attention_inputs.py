"""Device tensors that say, for the tokens of one forward pass, where keys are read and written."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class AttentionInputs:
    """Addressing of one forward pass over `num_tokens` query tokens of `num_reqs` requests.

    Every query token sees the tokens at positions first_visible .. position of its own request, itself included.
    A padding token has position -1 and sees nothing: its attention output is exactly zero.
    Keys of the step are written before any attention of the layer reads them.
    """

    positions: Tensor  # [num_tokens] int64; absolute position in the request, -1 = padding
    req_of_token: Tensor  # [num_tokens] int64; batch index of the token's request (any valid index for padding)
    page_table: Tensor  # [num_reqs, max_pages] int32; group `target`, 0 = null page
    slot_mapping: Tensor  # [num_tokens] int64; group `target`, page * page_size + offset, -1 = do not write
    index_page_table: Tensor  # [num_reqs, max_pages] int32; group `index`
    index_slot_mapping: Tensor  # [num_tokens] int64; group `index`
