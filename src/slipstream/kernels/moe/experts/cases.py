"""Named cases of `experts`."""

from __future__ import annotations

from typing import Any

import torch

from slipstream.kernels.case import Case, Tolerance

SINGLE = Tolerance(5e-6, 1e-5, "float32: two products of 24 and 12 terms, results of about 1")
HALF = Tolerance(3e-2, 2.0**-6, "bfloat16: both projections are rounded before the sum over 3 experts")

CASES = (
    Case("batch", "outputs return to another token or slot", 1, torch.float32, SINGLE, {"num_tokens": 7}),
    Case("one_token", "the path for a single token differs", 2, torch.float32, SINGLE, {"num_tokens": 1}),
    Case("beyond_the_clamp", "alpha, limit or the 1 are lost", 3, torch.float32, SINGLE, {"num_tokens": 5, "scale": 8}),
    Case(
        "padding",
        "a row of -1 is computed as expert -1, the last",
        4,
        torch.float32,
        SINGLE,
        {"num_tokens": 5, "num_padding": 2},
    ),
    Case("one_padding", "a batch of one padding token", 5, torch.float32, SINGLE, {"num_tokens": 1, "num_padding": 1}),
    Case("bf16", "the sum over experts is rounded at every addition", 6, torch.bfloat16, HALF, {"num_tokens": 6}),
)
HIDDEN_SIZE, INTERMEDIATE_SIZE, NUM_EXPERTS, TOPK_EXPERTS = 24, 12, 6, 3


def make_inputs(case: Case) -> dict[str, Any]:
    """Return the arguments of the contract; the ids of a row differ, and are not sorted."""
    generator = case.generator()
    num_tokens = case.size("num_tokens")
    scale = case.size("scale", 1)
    x = torch.randn(num_tokens, HIDDEN_SIZE, generator=generator) * scale
    ids = torch.stack([torch.randperm(NUM_EXPERTS, generator=generator)[:TOPK_EXPERTS] for _ in range(num_tokens)])
    weights = torch.rand(num_tokens, TOPK_EXPERTS, generator=generator) + 0.1
    w13 = torch.randn(NUM_EXPERTS, 2 * INTERMEDIATE_SIZE, HIDDEN_SIZE, generator=generator) * HIDDEN_SIZE**-0.5
    w2 = torch.randn(NUM_EXPERTS, HIDDEN_SIZE, INTERMEDIATE_SIZE, generator=generator) * INTERMEDIATE_SIZE**-0.5
    if case.size("num_padding", 0):
        first = num_tokens - case.size("num_padding")
        ids[first:], weights[first:] = -1, 0.0
    return {
        "x": x.to(case.dtype),
        "expert_ids": ids,
        "expert_weights": weights,
        "w13": w13.to(case.dtype),
        "w2": w2.to(case.dtype),
        "alpha": 1.5,
        "limit": 6.0,
    }
