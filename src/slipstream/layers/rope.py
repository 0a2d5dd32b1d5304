"""The rotary table. It is built once and passed to the layers; no layer owns one."""

from __future__ import annotations

import torch
from torch import Tensor

from slipstream.base.errors import ConfigError


def build_rope_table(max_positions: int, rotary_dim: int, theta: float, device: torch.device | str) -> Tensor:
    """Return the cosines and sines of every position.

    Args:
        max_positions: rows.
        rotary_dim: even; leading part of a head that is rotated.
        theta: base; frequency i is theta ** (-2 i / rotary_dim).
        device: of the table.

    Returns:
        [max_positions, rotary_dim] float32; rotary_dim / 2 cosines, then as many sines.

    Raises:
        ConfigError: rotary_dim is odd or not positive.

    Numerics: angles in float64, because a float32 angle is off by a hundredth at position 10^6; one rounding.
    """
    if rotary_dim < 2 or rotary_dim % 2:
        raise ConfigError(f"rotary_dim = {rotary_dim}; allowed is an even number of at least 2")
    exponents = torch.arange(0, rotary_dim, 2, dtype=torch.float64) / rotary_dim
    # holds [max_positions, rotary_dim / 2], float64 values
    angles = torch.outer(torch.arange(max_positions, dtype=torch.float64), theta**-exponents)
    return torch.cat((angles.cos(), angles.sin()), dim=1).float().to(device)
