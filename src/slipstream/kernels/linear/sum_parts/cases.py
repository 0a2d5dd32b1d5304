"""Named cases of `sum_parts`."""

from __future__ import annotations

from typing import Any

import torch

from slipstream.kernels.case import EXACT, Case, Tolerance

SINGLE = Tolerance(1e-6, 1e-6, "float32 sums of a few values of about 1")
HALF = Tolerance(0.0, 2**-8, "one rounding to bfloat16")
CASES = (
    Case("one", "a lone part is changed", 1, torch.float32, EXACT, {"shape": (1, 3, 5)}),
    Case("twelve", "a part is left out", 2, torch.float32, SINGLE, {"shape": (12, 4, 70)}),
    Case("rounded", "sums are rounded on the way", 3, torch.bfloat16, HALF, {"shape": (6, 2, 130)}),
    Case(
        "in_order",
        "large parts that cancel are not added in order, and what is small is lost",
        4,
        torch.float32,
        EXACT,
        {"shape": (4, 2, 64)},
    ),
)


def make_inputs(case: Case) -> dict[str, Any]:
    """Return the arguments of the contract."""
    parts = torch.randn(case.sequence("shape"), generator=case.generator())
    if case.name == "rounded":
        # Positive, so that a result is never much smaller than its parts.
        parts = parts.abs() + 0.5
    elif case.name == "in_order":
        # Only (2^30 - 2^30) + small + small keeps the small ones.
        parts = parts.mul(8).round()
        parts[0], parts[1] = 2.0**30, -(2.0**30)
    return {"parts": parts, "dtype": case.dtype}
