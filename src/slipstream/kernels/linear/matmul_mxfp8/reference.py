"""Definition of `matmul_mxfp8`: the weights dequantised to float32, one product per split."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from slipstream.kernels.linear.matmul_mxfp8.layout import UNIT, dequantise
from slipstream.kernels.linear.matmul_mxfp8.plan import units_per_split

if TYPE_CHECKING:
    from jaxtyping import Float, Float32, Int16, Int64


def matmul_mxfp8(
    x: Float[Tensor, "num_tokens in_features"],
    words: Int16[Tensor, "out_units in_units unit_words"],
    scale_words: Int64[Tensor, "out_units in_chunks unit_rows"],
    out_features: int,
) -> Float32[Tensor, "num_splits num_tokens out_features"]:
    """See the contract."""
    weight = dequantise(words, scale_words, out_features)
    width = UNIT * units_per_split(words.shape[0], words.shape[1])
    stretches = zip(x.float().split(width, dim=1), weight.split(width, dim=1), strict=True)
    # Row by row: a product of many rows may be summed in another order than one of a single row.
    parts = [
        torch.stack([part_weight @ row for row in part_x]) if len(x) else x.new_zeros((0, out_features)).float()
        for part_x, part_weight in stretches
    ]
    return torch.stack(parts)
