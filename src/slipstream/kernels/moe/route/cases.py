"""Named cases of `route`."""

from __future__ import annotations

from typing import Any

import torch

from slipstream.kernels.case import Case, Tolerance

SINGLE = Tolerance(2e-6, 5e-6, "float32: one product of 24 terms, a sigmoid, a sum of 3; ids must be equal")

CASES = (
    Case("biased", "the biased scores are used as weights", 1, torch.float32, SINGLE, {"bias": 1}),
    Case("unbiased", "weights are not made to sum to the scaling factor", 2, torch.float32, SINGLE, {"bias": 0}),
    Case("ties", "of equal scores the higher expert id is taken", 3, torch.float32, SINGLE, {"bias": 0}),
    Case("padding", "padding tokens are sent to experts", 4, torch.float32, SINGLE, {"bias": 1, "num_padding": 3}),
    Case("bf16", "logits are rounded to bfloat16: close scores change order", 5, torch.bfloat16, SINGLE, {"bias": 1}),
)
NUM_TOKENS, HIDDEN_SIZE, NUM_EXPERTS, TOPK_EXPERTS = 12, 24, 10, 3


def make_inputs(case: Case) -> dict[str, Any]:
    """Return the arguments of the contract; in `ties`, experts come in pairs of equal weights."""
    generator = case.generator()
    x = torch.randn(NUM_TOKENS, HIDDEN_SIZE, generator=generator)
    weight = torch.randn(NUM_EXPERTS, HIDDEN_SIZE, generator=generator) * 0.3
    if case.name == "ties":
        weight[1::2] = weight[::2]
        x[0] = 0.0
    if case.name == "bf16":
        weight *= 0.02
    positions = torch.arange(NUM_TOKENS)
    if case.size("num_padding", 0):
        positions[-case.size("num_padding") :] = -1
        x[-1] = float("nan")
    return {
        "x": x.to(case.dtype),
        "router_weight": weight,
        "router_bias": torch.randn(NUM_EXPERTS, generator=generator) * 0.4 * case.size("bias"),
        "positions": positions,
        "topk_experts": TOPK_EXPERTS,
        "routed_scaling_factor": 2.5,
    }
