"""Named cases of `sum_swiglu_oai`."""

from __future__ import annotations

from typing import Any

import torch

from slipstream.kernels.case import Case, Tolerance

HALF = Tolerance(1e-6, 1.05 * 2.0**-8, "bfloat16: one rounding of the result, 2^-8 relative, and the float32 part")

CASES = (
    Case("one_split", "a single part is taken for none", 1, torch.float32, HALF, {"num_splits": 1, "scale": 1}),
    Case("small", "a part is left out, or halves are taken as interleaved", 2, torch.float32, HALF, {"scale": 1}),
    Case("beyond_the_clamp", "parts are clamped instead of their sum", 3, torch.float32, HALF, {"scale": 20}),
    Case("rounded", "the sum is not rounded before the activation", 4, torch.float32, HALF, {"scale": 4}),
)


def make_inputs(case: Case) -> dict[str, Any]:
    """Return the arguments of the contract; opposite signs of gate and up occur in every row."""
    shape = (case.size("num_splits", 3), 6, 2 * 20)
    parts = torch.randn(shape, generator=case.generator()) * case.size("scale")
    # The constants differ from the family's, so that a hard-wired one shows.
    return {"parts": parts, "alpha": 1.5, "limit": 6.0}
