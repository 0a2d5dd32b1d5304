"""Named cases of `add_rms_norm`."""

from __future__ import annotations

from typing import Any

import torch

from slipstream.kernels.case import Case, Tolerance

SINGLE = Tolerance(1e-6, 2e-6, "float32: a dozen roundings of 6e-8, relative to the value")
HALF = Tolerance(1e-6, 1.05 * 2.0**-8, "bfloat16: one rounding of each result, 2^-8 relative, and the float32 part")

CASES = (
    Case("gemma", "the norm is taken of x alone, or the residual is returned unchanged", 1, torch.float32, SINGLE),
    Case("gemma_bf16", "the norm is taken of the sum before it was rounded to the stream", 2, torch.bfloat16, HALF),
)


def make_inputs(case: Case) -> dict[str, Any]:
    """Return the arguments of the contract.

    The sums cancel in part: a residual of 3 and an output of about -3 leave little, so that in bfloat16 the rounding
    of the sum is a large part of it.
    """
    generator = case.generator()
    residual = torch.randn(4, 32, generator=generator) * 3.0
    x = -residual + torch.randn(4, 32, generator=generator) * 0.1
    weight = torch.randn(32, generator=generator) * 0.1 - 0.9
    tensors = {"x": x, "residual": residual, "weight": weight}
    return {**{name: tensor.to(case.dtype) for name, tensor in tensors.items()}, "eps": 1e-6, "gemma": True}
