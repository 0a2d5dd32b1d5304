"""Definition of `sum_parts`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float, Float32


def sum_parts(
    parts: Float32[Tensor, "num_splits num_tokens out_features"], dtype: torch.dtype
) -> Float[Tensor, "num_tokens out_features"]:
    """See the contract."""
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total.to(dtype)
