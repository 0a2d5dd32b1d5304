"""Named cases of `experts_nvfp4`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from slipstream.kernels.case import Case, Tolerance
from slipstream.kernels.moe.experts_nvfp4.layout import interleave, pack

HALF = Tolerance(2e-2, 2.0**-6, "bfloat16: the activation and the result are rounded, over 128 terms of about 0.3")

CASES = (
    Case("batch", "outputs return to another token or slot", 1, torch.bfloat16, HALF, {"num_tokens": 7}),
    Case("one_token", "gate and up, or the order of the codes in a word, are exchanged", 2, torch.bfloat16, HALF, {}),
    Case(
        "beyond_the_clamp",
        "alpha, limit or the 1 are lost",
        3,
        torch.bfloat16,
        HALF,
        {"num_tokens": 5, "scale": 3, "limit": 1},
    ),
    Case(
        "padding",
        "a row of -1 is computed as expert -1, the last",
        4,
        torch.bfloat16,
        HALF,
        {"num_tokens": 5, "num_padding": 2},
    ),
    Case("one_padding", "a batch of one padding token", 5, torch.bfloat16, HALF, {"num_padding": 1}),
    Case(
        "one_expert",
        "tokens beyond the first tile of an expert, or experts without a token, are mistaken",
        6,
        torch.bfloat16,
        HALF,
        {"num_tokens": 19, "topk": 1, "only": 3},
    ),
    Case(
        "uneven_scales",
        "scales that are zero, subnormal or the largest are read as others",
        7,
        torch.bfloat16,
        HALF,
        {"num_tokens": 3, "uneven": 1},
    ),
    Case("split", "parts of the hidden axis are added twice or not at all", 8, torch.bfloat16, HALF, {"hidden": 512}),
)
HIDDEN_SIZE, INTERMEDIATE_SIZE, NUM_EXPERTS, TOPK_EXPERTS = 128, 128, 5, 2
_MEAN_CODE = 2.1
"""Root mean square of evenly drawn e2m1 codes, roughly."""


def make_inputs(case: Case) -> dict[str, Any]:
    """Return the arguments of the contract; the ids of a row differ, and are not sorted."""
    generator = case.generator()
    num_tokens, hidden = case.size("num_tokens", 1), case.size("hidden", HIDDEN_SIZE)
    topk = case.size("topk", TOPK_EXPERTS)
    x = torch.randn(num_tokens, hidden, generator=generator) * case.size("scale", 1)
    ids = torch.stack([torch.randperm(NUM_EXPERTS, generator=generator)[:topk] for _ in range(num_tokens)])
    weights = torch.rand(num_tokens, topk, generator=generator) + 0.1
    if "only" in case.sizes:
        ids.fill_(case.size("only"))
    if case.size("num_padding", 0):
        first = num_tokens - case.size("num_padding")
        ids[first:], weights[first:] = -1, 0.0
    gate, up = (_matrix(INTERMEDIATE_SIZE, hidden, generator, bool(case.size("uneven", 0))) for _ in range(2))
    down = _matrix(hidden, INTERMEDIATE_SIZE, generator, bool(case.size("uneven", 0)))
    w13 = pack(*(interleave(one, other) for one, other in zip(gate, up, strict=True)))
    factor = torch.rand(NUM_EXPERTS, generator=generator) + 0.5
    return {
        "x": x.to(case.dtype),
        "expert_ids": ids,
        "expert_weights": weights,
        "w13": w13,
        "w13_scale": factor / (_MEAN_CODE * hidden**0.5),
        "w2": pack(*down),
        "w2_scale": factor.flip(0) / (_MEAN_CODE * INTERMEDIATE_SIZE**0.5),
        "alpha": 1.5,
        "limit": float(case.size("limit", 6)),
    }


def _matrix(rows: int, columns: int, generator: torch.Generator, is_uneven: bool) -> tuple[Tensor, Tensor]:
    """Return random codes and scales of a matrix per expert, as a checkpoint has them."""
    codes = torch.randint(0, 256, (NUM_EXPERTS, rows, columns // 2), generator=generator, dtype=torch.uint8)
    scales = (torch.rand(NUM_EXPERTS, rows, columns // 16, generator=generator) + 0.5).to(torch.float8_e4m3fn)
    if is_uneven:
        # Every scale there is, from 0 to 448, the large ones rare enough to leave sums of about 1.
        every = torch.arange(0x7F, dtype=torch.uint8).view(torch.float8_e4m3fn)
        drawn = every.float()[torch.randint(0, 0x7F, scales.shape, generator=generator)]
        scales = torch.where(drawn > 2, scales.float() / 64, drawn / 2).to(torch.float8_e4m3fn)
        scales[:, 0, 0] = every[-1]
    return codes, scales
