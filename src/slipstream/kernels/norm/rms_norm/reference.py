"""Definition of `rms_norm`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor
from torch.nn import functional

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
    return functional.rms_norm(x.float(), weight.shape, gain, eps).to(x.dtype)
