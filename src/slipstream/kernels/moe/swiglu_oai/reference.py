"""Definition of `swiglu_oai`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float


def swiglu_oai(
    gate_up: Float[Tensor, "num_tokens twice_intermediate_size"], alpha: float, limit: float
) -> Float[Tensor, "num_tokens intermediate_size"]:
    """See the contract."""
    gate, up = gate_up.float().chunk(2, dim=1)
    # HAZARD: only the upper side of the gate is clamped; a two-sided clamp is wrong far below zero.
    gate = gate.clamp_max(limit)
    up = up.clamp(-limit, limit)
    gated = gate * torch.sigmoid(gate * alpha)
    return torch.addcmul(gated, gated, up).to(gate_up.dtype)
