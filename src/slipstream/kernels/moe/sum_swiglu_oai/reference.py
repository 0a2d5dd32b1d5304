"""Definition of `sum_swiglu_oai`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from slipstream.kernels.moe.swiglu_oai.reference import swiglu_oai

if TYPE_CHECKING:
    from jaxtyping import BFloat16, Float32


def sum_swiglu_oai(
    parts: Float32[Tensor, "num_splits num_tokens twice_intermediate_size"], alpha: float, limit: float
) -> BFloat16[Tensor, "num_tokens intermediate_size"]:
    """See the contract."""
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return swiglu_oai(total.to(torch.bfloat16), alpha, limit)
