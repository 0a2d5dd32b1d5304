"""Definition of `rms_norm`."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    gain = weight.float() + 1.0 if gemma else weight.float()
    return normalise(x.float(), eps).mul_(gain).to(x.dtype)


def normalise(rows: Tensor, eps: float) -> Tensor:
    """Return float32 rows over the root of their mean square, along the last axis, in new memory."""
    return rows * rows.square().mean(-1, keepdim=True).add_(eps).rsqrt_()
