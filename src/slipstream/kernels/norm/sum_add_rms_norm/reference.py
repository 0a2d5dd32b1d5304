"""Definition of `sum_add_rms_norm`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from slipstream.kernels.norm.add_rms_norm.reference import add_rms_norm

if TYPE_CHECKING:
    from jaxtyping import Float, Float32


def sum_add_rms_norm(
    parts: Float32[Tensor, "num_splits num_tokens hidden_size"],
    extra: Float[Tensor, "num_tokens hidden_size"] | None,
    residual: Float[Tensor, "num_tokens hidden_size"],
    weight: Float[Tensor, "hidden_size"],
    eps: float,
    gemma: bool,
) -> tuple[Float[Tensor, "num_tokens hidden_size"], Float[Tensor, "num_tokens hidden_size"]]:
    """See the contract."""
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    output = total.to(residual.dtype)
    if extra is not None:
        output = output + extra
    return add_rms_norm(output, residual, weight, eps, gemma)
