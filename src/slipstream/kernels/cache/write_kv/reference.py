"""Definition of `write_kv`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float, Int64


def write_kv(
    k: Float[Tensor, "num_tokens num_kv_heads head_dim"],
    v: Float[Tensor, "num_tokens num_kv_heads head_dim"],
    k_pages: Float[Tensor, "num_pages page_size num_kv_heads head_dim"],
    v_pages: Float[Tensor, "num_pages page_size num_kv_heads head_dim"],
    slot_mapping: Int64[Tensor, "num_tokens"],
    index_k: Float[Tensor, "num_tokens index_head_dim"] | None,
    index_k_pages: Float[Tensor, "num_index_pages page_size index_head_dim"] | None,
    index_slot_mapping: Int64[Tensor, "num_tokens"] | None,
    k_scale: float = 1.0,
    v_scale: float = 1.0,
) -> None:
    """See the contract."""
    _scatter(((_scaled(k, k_scale), k_pages), (_scaled(v, v_scale), v_pages)), slot_mapping)
    if index_k is not None and index_k_pages is not None and index_slot_mapping is not None:
        _scatter(((index_k, index_k_pages),), index_slot_mapping)


def _scatter(writes: tuple[tuple[Tensor, Tensor], ...], slots: Tensor) -> None:
    """Write each (rows, pages) pair at the slots that are not negative."""
    kept: Tensor | None = None
    if min(slots.tolist(), default=0) < 0:
        # HAZARD: an index of -1 means the last slot to every indexing call; negative slots are taken out.
        kept = (slots >= 0).nonzero().squeeze(1)
        slots = slots.index_select(0, kept)
    for rows, pages in writes:
        chosen = _rounded(rows if kept is None else rows.index_select(0, kept), pages.dtype)
        if pages.dtype == torch.float8_e4m3fn:
            # Its bits are copied: torch has few operations for the type itself.
            chosen, pages = chosen.view(torch.uint8), pages.view(torch.uint8)
        if pages.is_contiguous():
            # Never of a reshaped copy: it would take the writes with it.
            pages.flatten(0, 1).index_copy_(0, slots, chosen)
        else:
            page_size = pages.shape[1]
            pages.index_put_((slots // page_size, slots % page_size), chosen)


def _scaled(rows: Tensor, scale: float) -> Tensor:
    """Return rows divided by their scale, in float32 where there is anything to divide by."""
    return rows if scale == 1.0 else rows.float() / scale


def _rounded(rows: Tensor, dtype: torch.dtype) -> Tensor:
    """Return rows in the dtype of the pages; float8 saturates, whatever a cast of this torch would do."""
    if dtype != torch.float8_e4m3fn:
        return rows.to(dtype)
    largest = torch.finfo(dtype).max
    return rows.float().clamp(-largest, largest).to(dtype)
