"""Definition of `qk_norm_rope`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from slipstream.kernels.norm.rms_norm.reference import normalise, scale_

if TYPE_CHECKING:
    from jaxtyping import Float, Int64


def qk_norm_rope(
    x: Float[Tensor, "num_tokens num_heads head_dim"],
    weight: Float[Tensor, "num_kinds head_dim"] | None,
    kind_of_head: Int64[Tensor, "num_heads"] | None,
    eps: float,
    gemma: bool,
    rope_table: Float[Tensor, "max_positions rotary_dim"],
    positions: Int64[Tensor, "num_tokens"],
) -> Float[Tensor, "num_tokens num_heads head_dim"]:
    """See the contract."""
    heads = x.float()
    if weight is not None and kind_of_head is not None:
        heads = scale_(normalise(heads, eps), weight.index_select(0, kind_of_head).float(), gemma)
    rotary_dim = rope_table.shape[1]
    half = rotary_dim // 2
    # HAZARD: -1 would read the table's last row; padding takes row 0, whatever the table's length.
    rows = rope_table.index_select(0, positions.clamp_min(0)).unsqueeze(1)
    cosine, sine = rows.chunk(2, dim=2)
    first, second, passed = heads.split_with_sizes((half, half, heads.shape[2] - rotary_dim), dim=2)
    turned_first = torch.addcmul(first * cosine, second, sine, value=-1.0)
    turned_second = torch.addcmul(second * cosine, first, sine)
    return torch.cat((turned_first, turned_second, passed), dim=2).to(x.dtype)
