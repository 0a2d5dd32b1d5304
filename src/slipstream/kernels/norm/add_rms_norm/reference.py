"""Definition of `add_rms_norm`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from slipstream.kernels.norm.rms_norm.reference import rms_norm

if TYPE_CHECKING:
    from jaxtyping import Float


def add_rms_norm(
    x: Float[Tensor, "num_tokens hidden_size"],
    residual: Float[Tensor, "num_tokens hidden_size"],
    weight: Float[Tensor, "hidden_size"],
    eps: float,
    gemma: bool,
) -> tuple[Float[Tensor, "num_tokens hidden_size"], Float[Tensor, "num_tokens hidden_size"]]:
    """See the contract."""
    new_residual = x + residual
    return rms_norm(new_residual, weight, eps, gemma), new_residual
