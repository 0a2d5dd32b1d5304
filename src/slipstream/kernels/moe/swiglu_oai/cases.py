"""Named cases of `swiglu_oai`."""

from __future__ import annotations

from typing import Any

import torch

from slipstream.kernels.case import Case, Tolerance

SINGLE = Tolerance(1e-6, 2e-6, "float32: half a dozen roundings, relative to the value")
HALF = Tolerance(1e-6, 1.05 * 2.0**-8, "bfloat16: one rounding of the result, 2^-8 relative, and the float32 part")

CASES = (
    Case("small", "halves are taken as interleaved, or swapped", 1, torch.float32, SINGLE, {"scale": 1}),
    Case(
        "beyond_the_clamp",
        "the gate is clamped from below too, or up is not clamped",
        2,
        torch.float32,
        SINGLE,
        {"scale": 20},
    ),
    Case("bf16", "the sigmoid is taken in bfloat16", 3, torch.bfloat16, HALF, {"scale": 4}),
)


def make_inputs(case: Case) -> dict[str, Any]:
    """Return the arguments of the contract; opposite signs of gate and up occur in every row."""
    gate_up = torch.randn(6, 2 * 20, generator=case.generator()) * case.size("scale")
    # The constants differ from the family's, so that a hard-wired one shows.
    return {"gate_up": gate_up.to(case.dtype), "alpha": 1.5, "limit": 6.0}
