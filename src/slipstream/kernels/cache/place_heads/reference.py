"""Definition of `place_heads`: the operations that it joins, one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from slipstream.kernels.cache.place_heads.contract import HeadCounts
from slipstream.kernels.cache.write_kv.reference import write_kv
from slipstream.kernels.norm.qk_norm_rope.reference import qk_norm_rope

if TYPE_CHECKING:
    from jaxtyping import Float, Float32, Int64


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
    index_k_pages: Float[Tensor, "num_index_pages page_size head_dim"] | None,
    index_slot_mapping: Int64[Tensor, "num_tokens"] | None,
) -> tuple[Float[Tensor, "num_tokens num_heads head_dim"], Float[Tensor, "num_tokens num_index_heads head_dim"]]:
    """See the contract."""
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    num_tokens, head_dim = total.shape[0], norm_weight.shape[1]
    heads = total.to(norm_weight.dtype).view(num_tokens, counts.total, head_dim)
    sizes = (counts.num_heads, counts.num_kv_heads, counts.num_index_heads, counts.num_index_keys)
    repeats = torch.tensor(sizes[: len(norm_weight)], device=parts.device)
    kinds = torch.arange(len(norm_weight), device=parts.device).repeat_interleave(
        repeats, output_size=counts.num_normed
    )
    normed = qk_norm_rope(heads[:, : counts.num_normed], norm_weight, kinds, eps, gemma, rope_table, positions)
    q, k, index_q, index_k = normed.split_with_sizes(sizes, dim=1)
    key = index_k[:, 0] if counts.num_index_keys else None
    v = heads[:, counts.num_normed :]
    write_kv(k, v, k_pages, v_pages, slot_mapping, key, index_k_pages, index_slot_mapping)
    return q.contiguous(), index_q.contiguous()
