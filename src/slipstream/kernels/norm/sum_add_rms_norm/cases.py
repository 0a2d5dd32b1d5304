"""Named cases of `sum_add_rms_norm`."""

from __future__ import annotations

from typing import Any

import torch

from slipstream.kernels.case import Case, Tolerance

SINGLE = Tolerance(2e-6, 4e-6, "float32: two dozen roundings of 6e-8, relative to the value")
HALF = Tolerance(1e-6, 1.05 * 2.0**-8, "bfloat16: one rounding of each result, 2^-8 relative, and the float32 part")

CASES = (
    Case("one_part", "a single part is taken for none", 1, torch.float32, SINGLE, {"num_splits": 1}),
    Case("parts", "the last split is left out, or the norm is taken of the products alone", 2, torch.float32, SINGLE),
    Case("extra", "the second output is left out, or counted twice", 3, torch.float32, SINGLE, {"extra": 1}),
    Case("bf16", "sums are not rounded to the stream where the layers round them", 4, torch.bfloat16, HALF),
    Case("extra_bf16", "the two outputs are added before either is rounded", 5, torch.bfloat16, HALF, {"extra": 1}),
)


def make_inputs(case: Case) -> dict[str, Any]:
    """Return the arguments of the contract: sums that cancel in part, so that every rounding on the way shows."""
    generator = case.generator()
    num_tokens, hidden_size, num_splits = 5, 48, case.size("num_splits", 3)
    residual = torch.randn(num_tokens, hidden_size, generator=generator) * 3.0
    parts = torch.randn(num_splits, num_tokens, hidden_size, generator=generator)
    extra = torch.randn(num_tokens, hidden_size, generator=generator).to(case.dtype) if case.size("extra", 0) else None
    parts[-1] += -residual - parts.sum(0) + torch.randn(num_tokens, hidden_size, generator=generator) * 0.1
    if extra is not None:
        parts[-1] -= extra.float()
    weight = torch.randn(hidden_size, generator=generator) * 0.1 - 0.9
    return {
        "parts": parts,
        "extra": extra,
        "residual": residual.to(case.dtype),
        "weight": weight.to(case.dtype),
        "eps": 1e-6,
        "gemma": True,
    }
