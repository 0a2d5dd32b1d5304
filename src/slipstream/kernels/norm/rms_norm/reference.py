"""Definition of `rms_norm`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float


def rms_norm(
    x: Float[Tensor, "num_tokens hidden_size"],
    weight: Float[Tensor, "hidden_size"],
    eps: float,
    gemma: bool,
) -> Float[Tensor, "num_tokens hidden_size"]:
    """See the contract."""
    return scale_(normalise(x.float(), eps), weight.float(), gemma).to(x.dtype)


def normalise(rows: Tensor, eps: float) -> Tensor:
    """Return float32 rows over the root of their mean square, along the last axis, in new memory."""
    norm = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    mean_square = torch.addcmul(norm.new_full((), eps), norm, norm, value=1.0 / rows.shape[-1])
    return rows * mean_square.rsqrt_()


def scale_(rows: Tensor, weight: Tensor, gemma: bool) -> Tensor:
    """Multiply float32 rows, in place, by weight or by 1 + weight."""
    return rows.addcmul_(rows, weight) if gemma else rows.mul_(weight)
