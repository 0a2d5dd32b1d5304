"""Store the keys, values and index keys of a step's tokens in their pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from slipstream.kernels.attention.checks import check_scales
from slipstream.kernels.faults import shape_fault
from slipstream.kernels.select import select

if TYPE_CHECKING:
    from jaxtyping import Float, Int64


def write_kv(
    k: Float[Tensor, "num_tokens num_kv_heads head_dim"],
    v: Float[Tensor, "num_tokens num_kv_heads head_dim"],
    k_pages: Float[Tensor, "num_pages page_size num_kv_heads head_dim"],
    v_pages: Float[Tensor, "num_pages page_size num_kv_heads head_dim"],
    slot_mapping: Int64[Tensor, "num_tokens"],
    index_k: Float[Tensor, "num_tokens index_head_dim"] | None = None,
    index_k_pages: Float[Tensor, "num_index_pages page_size index_head_dim"] | None = None,
    index_slot_mapping: Int64[Tensor, "num_tokens"] | None = None,
    k_scale: float = 1.0,
    v_scale: float = 1.0,
) -> None:
    """Write row i to slot slot_mapping[i], that is to page slot // page_size at slot % page_size.

    Args:
        k: [num_tokens, num_kv_heads, head_dim].
        v: [num_tokens, num_kv_heads, head_dim].
        k_pages: [num_pages, page_size, num_kv_heads, head_dim]; written in place.
        v_pages: [num_pages, page_size, num_kv_heads, head_dim]; written in place.
        slot_mapping: [num_tokens] int64; -1 is skipped. No slot may occur twice.
        index_k: [num_tokens, index_head_dim], given together with the two that follow, or not at all.
        index_k_pages: [num_pages of its own, page_size, index_head_dim]; written in place.
        index_slot_mapping: [num_tokens] int64 slots of the index pages; -1 is skipped.
        k_scale: keys are divided by this before they are stored; 1 unless pages are float8.
        v_scale: values are divided by this before they are stored; 1 unless pages are float8.

    Raises:
        ShapeError: an axis or a dtype disagrees.
        KernelError: a scale is not a positive number, or not 1 for pages that are not float8.

    Graph: slots are read on the device.
    Numerics: rows are rounded to the dtype of the pages. Pages in float8_e4m3fn saturate: what is beyond 448 is stored
        as 448, infinities too; NaN stays NaN. Index keys have no scale: a ranking ignores it.
    """
    if k.dim() != 3 or v.shape != k.shape:
        raise shape_fault("write_kv", "v", v, f"{list(k.shape)}, as k, [num_tokens, num_kv_heads, head_dim]")
    if k_pages.dim() != 4 or k_pages.shape[2:] != k.shape[1:] or v_pages.shape != k_pages.shape:
        allowed = f"[num_pages, page_size, {', '.join(str(size) for size in k.shape[1:])}], both alike"
        raise shape_fault("write_kv", "k_pages", k_pages, allowed)
    if slot_mapping.shape != k.shape[:1] or slot_mapping.dtype != torch.int64:
        raise shape_fault("write_kv", "slot_mapping", slot_mapping, f"[{k.shape[0]}] int64")
    check_scales("write_kv", k_pages, k_scale, v_scale)
    if index_k is not None:
        _check_index(k, index_k, index_k_pages, index_slot_mapping)
    function = select("cache/write_kv", k.device.type).function
    function(k, v, k_pages, v_pages, slot_mapping, index_k, index_k_pages, index_slot_mapping, k_scale, v_scale)


def _check_index(k: Tensor, index_k: Tensor, pages: Tensor | None, slots: Tensor | None) -> None:
    """Raise ShapeError unless the index operands are complete and agree."""
    if index_k.dim() != 2 or index_k.shape[0] != k.shape[0] or pages is None or slots is None:
        allowed = f"[{k.shape[0]}, index_head_dim] together with index_k_pages and index_slot_mapping"
        raise shape_fault("write_kv", "index_k", index_k, allowed)
    if pages.dim() != 3 or pages.shape[2] != index_k.shape[1]:
        raise shape_fault("write_kv", "index_k_pages", pages, f"[num_pages, page_size, {index_k.shape[1]}]")
    if slots.shape != k.shape[:1] or slots.dtype != torch.int64:
        raise shape_fault("write_kv", "index_slot_mapping", slots, f"[{k.shape[0]}] int64")
