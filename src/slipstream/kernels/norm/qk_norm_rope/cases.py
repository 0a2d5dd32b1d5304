"""Named cases of `qk_norm_rope`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from slipstream.kernels.case import Case, Tolerance

SINGLE = Tolerance(4e-6, 4e-6, "float32: norm and rotation, two dozen roundings on values of about 3")
HALF = Tolerance(1e-5, 1.05 * 2.0**-8, "bfloat16: one rounding of the result, 2^-8 relative, and the float32 part")

CASES = (
    Case(
        "partial", "all dimensions are rotated, or neighbours are paired", 1, torch.float32, SINGLE, {"rotary_dim": 8}
    ),
    Case("whole_head", "the part that passes is taken to exist", 2, torch.float32, SINGLE, {"rotary_dim": 16}),
    Case("bf16", "cosines and sines are rounded to the activations' dtype", 3, torch.bfloat16, HALF, {"rotary_dim": 8}),
    Case("no_norm", "a head without norm weights is normalised all the same", 4, torch.float32, SINGLE, {"no_norm": 1}),
    Case("padding", "position -1 reads the last row of the table", 5, torch.float32, SINGLE, {"num_padding": 2}),
    Case("far", "the position is rounded: angles of 10^5 positions need more than 16 bits", 6, torch.float32, SINGLE),
)
NUM_TOKENS = 6
HEADS = (4, 2, 2, 1)


def make_table(max_positions: int, rotary_dim: int, theta: float) -> Tensor:
    """Return [max_positions, rotary_dim] float32 cosines and sines."""
    exponents = torch.arange(0, rotary_dim, 2, dtype=torch.float64) / rotary_dim
    angles = torch.outer(torch.arange(max_positions, dtype=torch.float64), theta**-exponents)
    return torch.cat((angles.cos(), angles.sin()), dim=1).float()


def make_inputs(case: Case) -> dict[str, Any]:
    """Return the arguments of the contract: heads of four kinds, cut out of a wider projection (a strided view)."""
    generator = case.generator()
    num_heads, head_dim = sum(HEADS), 16
    rotary_dim = case.size("rotary_dim", 8)
    max_positions = 1 << 17 if case.name == "far" else 64
    projected = torch.randn(NUM_TOKENS, (num_heads + 2) * head_dim, generator=generator) * 3.0
    x = projected.to(case.dtype)[:, : num_heads * head_dim].view(NUM_TOKENS, num_heads, head_dim)
    positions = torch.randint(max_positions // 2, max_positions, (NUM_TOKENS,), generator=generator)
    if case.size("num_padding", 0):
        positions[-case.size("num_padding") :] = -1
    has_norm = not case.size("no_norm", 0)
    weight = torch.randn(len(HEADS), head_dim, generator=generator) * 0.2 - 0.5
    kinds = torch.repeat_interleave(torch.arange(len(HEADS)), torch.tensor(HEADS))
    return {
        "x": x,
        "weight": weight.to(case.dtype) if has_norm else None,
        "kind_of_head": kinds if has_norm else None,
        "eps": 1e-6,
        "gemma": True,
        "rope_table": make_table(max_positions, rotary_dim, 1e4),
        "positions": positions,
    }
