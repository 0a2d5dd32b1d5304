"""From the partial products of a fused projection to heads: sum, norm, rotary embedding, and the write into the cache.

Not here: the choice of blocks and attention itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from slipstream.kernels.faults import shape_fault
from slipstream.kernels.select import select

if TYPE_CHECKING:
    from jaxtyping import Float, Float32, Int64


@dataclass(frozen=True, slots=True)
class HeadCounts:
    """Heads of a projection on this rank, in the order of its columns: q, k, index_q, index_k, v.

    Args:
        num_heads: query heads.
        num_kv_heads: key heads, and as many value heads.
        num_index_heads: index query heads; with any there is one index key head, without there is none.
    """

    num_heads: int
    num_kv_heads: int
    num_index_heads: int

    @property
    def num_index_keys(self) -> int:
        """Index key heads: 1 or 0."""
        return int(self.num_index_heads > 0)

    @property
    def num_normed(self) -> int:
        """Heads that are normalised and rotated: all but the values."""
        return self.num_heads + self.num_kv_heads + self.num_index_heads + self.num_index_keys

    @property
    def total(self) -> int:
        """All heads."""
        return self.num_normed + self.num_kv_heads


def place_heads(
    parts: Float32[Tensor, "num_splits num_tokens width"],
    counts: HeadCounts,
    norm_weight: Float[Tensor, "num_kinds head_dim"],
    eps: float,
    gemma: bool,
    rope_table: Float32[Tensor, "max_positions rotary_dim"],
    positions: Int64[Tensor, "num_tokens"],
    k_pages: Float[Tensor, "num_pages page_size num_kv_heads head_dim"],
    v_pages: Float[Tensor, "num_pages page_size num_kv_heads head_dim"],
    slot_mapping: Int64[Tensor, "num_tokens"],
    index_k_pages: Float[Tensor, "num_index_pages page_size head_dim"] | None = None,
    index_slot_mapping: Int64[Tensor, "num_tokens"] | None = None,
) -> tuple[Float[Tensor, "num_tokens num_heads head_dim"], Float[Tensor, "num_tokens num_index_heads head_dim"]]:
    """Write keys, values and index keys of a step's tokens, and return their queries and index queries.

    Args:
        parts: [num_splits, num_tokens, counts.total * head_dim] float32; partial products.
        counts: what the columns are.
        norm_weight: [2, head_dim] of q and k, or with an index branch [4, head_dim] of q, k, index_q and index_k; its
            dtype is that of the activations.
        eps: added to the mean square of a head.
        gemma: the gain is 1 + weight.
        rope_table: [max_positions, rotary_dim] float32.
        positions: [num_tokens] int64; -1 (padding) rotates as 0 does.
        k_pages: [num_pages, page_size, num_kv_heads, head_dim]; written in place.
        v_pages: of the same shape and dtype; written in place.
        slot_mapping: [num_tokens] int64; -1 is skipped.
        index_k_pages: [num_pages of its own, page_size, head_dim] exactly when there are index heads.
        index_slot_mapping: [num_tokens] int64, with index_k_pages.

    Returns:
        q: [num_tokens, num_heads, head_dim] of norm_weight's dtype.
        index_q: [num_tokens, num_index_heads, head_dim] of the same; no head without an index branch.

    Raises:
        ShapeError: an axis or a dtype disagrees.

    Graph: slots are read on the device. A device implementation may read the norm weights before the kernel before it
        has ended.
    Numerics: the sum in float32 in order of the first axis, rounded to the activations' dtype; then as
        `norm/qk_norm_rope` and `cache/write_kv`, to the bit.
    """
    if norm_weight.dim() != 2 or norm_weight.shape[0] != (4 if counts.num_index_heads else 2):
        allowed = f"[{4 if counts.num_index_heads else 2}, head_dim] for {counts}"
        raise shape_fault("place_heads", "norm_weight", norm_weight, allowed)
    head_dim = norm_weight.shape[1]
    if parts.dim() != 3 or parts.shape[2] != counts.total * head_dim or parts.dtype != torch.float32 or not len(parts):
        allowed = f"[num_splits, num_tokens, {counts.total} * {head_dim}] float32, at least one split"
        raise shape_fault("place_heads", "parts", parts, allowed)
    num_tokens = parts.shape[1]
    if rope_table.dim() != 2 or rope_table.shape[1] % 2 or rope_table.shape[1] > head_dim:
        raise shape_fault("place_heads", "rope_table", rope_table, f"[max_positions, even, <= {head_dim}] float32")
    for name, values in (("positions", positions), ("slot_mapping", slot_mapping)):
        if values.shape != (num_tokens,) or values.dtype != torch.int64:
            raise shape_fault("place_heads", name, values, f"[{num_tokens}] int64")
    if k_pages.dim() != 4 or k_pages.shape[2:] != (counts.num_kv_heads, head_dim):
        allowed = f"[num_pages, page_size, {counts.num_kv_heads}, {head_dim}]"
        raise shape_fault("place_heads", "k_pages", k_pages, allowed)
    if v_pages.shape != k_pages.shape or v_pages.dtype != k_pages.dtype:
        raise shape_fault("place_heads", "v_pages", v_pages, f"{list(k_pages.shape)} {k_pages.dtype}, as k_pages")
    _check_index(counts, num_tokens, head_dim, index_k_pages, index_slot_mapping)
    function = select("cache/place_heads", parts.device.type).function
    return function(
        parts,
        counts,
        norm_weight,
        eps,
        gemma,
        rope_table,
        positions,
        k_pages,
        v_pages,
        slot_mapping,
        index_k_pages,
        index_slot_mapping,
    )


def _check_index(
    counts: HeadCounts, num_tokens: int, head_dim: int, pages: Tensor | None, slots: Tensor | None
) -> None:
    """Raise ShapeError unless the index operands are there exactly when the projection has index heads, and agree."""
    if not counts.num_index_heads:
        if pages is not None:
            raise shape_fault("place_heads", "index_k_pages", pages, "None: the projection has no index heads")
        return
    if pages is None or pages.dim() != 3 or pages.shape[2] != head_dim:
        given = torch.empty(0) if pages is None else pages
        raise shape_fault("place_heads", "index_k_pages", given, f"[num_pages, page_size, {head_dim}]")
    if slots is None or slots.shape != (num_tokens,) or slots.dtype != torch.int64:
        given = torch.empty(0) if slots is None else slots
        raise shape_fault("place_heads", "index_slot_mapping", given, f"[{num_tokens}] int64")
