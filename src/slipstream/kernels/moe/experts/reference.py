"""Definition of `experts`: one pair of products per expert that somebody chose.

The list of active experts is read on the host, which a CPU reference may do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from slipstream.kernels.moe.swiglu_oai.reference import swiglu_oai

if TYPE_CHECKING:
    from jaxtyping import Float, Float32, Int64


def experts(
    x: Float[Tensor, "num_tokens hidden_size"],
    expert_ids: Int64[Tensor, "num_tokens topk_experts"],
    expert_weights: Float32[Tensor, "num_tokens topk_experts"],
    w13: Float[Tensor, "num_experts twice_intermediate_size hidden_size"],
    w2: Float[Tensor, "num_experts hidden_size intermediate_size"],
    alpha: float,
    limit: float,
) -> Float[Tensor, "num_tokens hidden_size"]:
    """See the contract."""
    num_tokens, topk_experts = expert_ids.shape
    if num_tokens == 1:
        return _one_token(x, expert_ids, expert_weights, w13, w2, alpha, limit)
    # Pairs (token, slot) sorted by expert; padding, -1, sorts first and is left out.
    sorted_ids, pair_order = torch.sort(expert_ids.flatten(), stable=True)
    runs = _runs(sorted_ids.tolist())
    rows = x.index_select(0, pair_order // topk_experts)
    gate_up = x.new_zeros(len(rows), w13.shape[1])
    for expert, start, end in runs:
        torch.mm(rows[start:end], w13[expert].t(), out=gate_up[start:end])
    activated = swiglu_oai(gate_up, alpha, limit)
    outputs = x.new_zeros(len(rows), x.shape[1])
    for expert, start, end in runs:
        torch.mm(activated[start:end], w2[expert].t(), out=outputs[start:end])
    outputs = torch.empty_like(outputs).index_copy_(0, pair_order, outputs)
    by_slot = outputs.view(num_tokens, topk_experts, x.shape[1]).float() * expert_weights.unsqueeze(2)
    # INVARIANT: slots are added one after the other, so that a token's sum does not depend on its batch.
    # A sum over a short outer axis does that (its test compares with a written-out loop), in one call.
    return by_slot.sum(1).to(x.dtype)


def _one_token(
    x: Tensor, expert_ids: Tensor, expert_weights: Tensor, w13: Tensor, w2: Tensor, alpha: float, limit: float
) -> Tensor:
    """Return the same for a single token, which names every expert once: its slots need no sorting."""
    chosen: list[int] = expert_ids[0].tolist()
    if chosen[0] < 0:
        return torch.zeros_like(x)
    gate_up = torch.cat([torch.mm(x, w13[expert].t()) for expert in chosen])
    activated = swiglu_oai(gate_up, alpha, limit).chunk(len(chosen))
    outputs = torch.cat([torch.mm(row, w2[expert].t()) for row, expert in zip(activated, chosen, strict=True)])
    return torch.mm(expert_weights, outputs.float()).to(x.dtype)


def _runs(sorted_ids: list[int]) -> list[tuple[int, int, int]]:
    """Return (expert, start, end) of each run of equal ids, padding left out."""
    runs: list[tuple[int, int, int]] = []
    start = 0
    for i in range(1, len(sorted_ids) + 1):
        if i == len(sorted_ids) or sorted_ids[i] != sorted_ids[start]:
            if sorted_ids[start] >= 0:
                runs.append((sorted_ids[start], start, i))
            start = i
    return runs
