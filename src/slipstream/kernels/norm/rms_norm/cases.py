"""Named cases of `rms_norm`."""

from __future__ import annotations

from typing import Any

import torch

from slipstream.kernels.case import Case, Tolerance

SINGLE = Tolerance(1e-6, 2e-6, "float32: a dozen roundings of 6e-8, relative to the value")
HALF = Tolerance(1e-6, 1.05 * 2.0**-8, "bfloat16: one rounding of the result, 2^-8 relative, and the float32 part")

CASES = (
    Case("plain", "the 1 is added although the norm is not of that kind", 1, torch.float32, SINGLE, {"gemma": 0}),
    Case("gemma", "the 1 is forgotten: gains near 0.06 become -0.94", 2, torch.float32, SINGLE, {"gemma": 1}),
    Case("gemma_bf16", "1 + weight is rounded to bfloat16 before the product", 3, torch.bfloat16, HALF, {"gemma": 1}),
    Case("plain_bf16", "the mean square is accumulated in bfloat16", 4, torch.bfloat16, HALF, {"gemma": 0}),
    Case("tiny_rows", "eps is left out, or added to the root", 5, torch.float32, SINGLE, {"gemma": 1, "tiny": 1}),
)


def make_inputs(case: Case) -> dict[str, Any]:
    """Return the arguments of the contract: five rows, gains of a Gemma norm scattered around 0.06."""
    generator = case.generator()
    x = torch.randn(5, 48, generator=generator) * (1e-3 if case.size("tiny", 0) else 3.0)
    weight = torch.randn(48, generator=generator) * 0.1 - 0.94
    gemma = bool(case.size("gemma"))
    return {"x": x.to(case.dtype), "weight": weight.to(case.dtype), "eps": 1e-6, "gemma": gemma}
