"""`route` in Triton: partial scores of a tile of tokens per slice of the hidden axis, then the choice per token.

The slices are added in one order, and a score depends on its token alone.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_TILE_TOKENS = 16
_SLICE = 128
_STEP = 64


@triton.jit(do_not_specialize=["num_tokens"])
def partial_scores_kernel(
    x_ptr,
    weight_ptr,
    partial_ptr,
    num_tokens,
    hidden_size,
    x_stride,
    num_slices,
    NUM_EXPERTS: tl.constexpr,
    BLOCK_EXPERTS: tl.constexpr,
    TILE_TOKENS: tl.constexpr,
    SLICE: tl.constexpr,
    STEP: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64) * TILE_TOKENS + tl.arange(0, TILE_TOKENS)
    part = tl.program_id(1)
    expert = tl.arange(0, BLOCK_EXPERTS)
    lanes = tl.arange(0, STEP)
    is_token = token < num_tokens
    is_expert = expert < NUM_EXPERTS
    total = tl.zeros((TILE_TOKENS, BLOCK_EXPERTS), tl.float32)
    for start in range(0, SLICE, STEP):
        column = part * SLICE + start + lanes
        is_inside = column < hidden_size
        x = tl.load(
            x_ptr + token[:, None] * x_stride + column[None, :], mask=is_token[:, None] & is_inside[None, :], other=0.0
        ).to(tl.float32)
        weight = tl.load(
            weight_ptr + expert[None, :] * hidden_size + column[:, None],
            mask=is_expert[None, :] & is_inside[:, None],
            other=0.0,
        )
        # HAZARD: the default would round both to 10 bits, and near ties would choose other experts.
        total = tl.dot(x, weight, total, input_precision="ieee")
    place = (token[:, None] * num_slices + part) * NUM_EXPERTS + expert[None, :]
    tl.store(partial_ptr + place, total, mask=is_token[:, None] & is_expert[None, :])


@triton.jit
def choose_experts_kernel(
    partial_ptr,
    bias_ptr,
    positions_ptr,
    ids_ptr,
    weights_ptr,
    num_slices,
    scaling_factor,
    NUM_EXPERTS: tl.constexpr,
    BLOCK_EXPERTS: tl.constexpr,
    TOPK: tl.constexpr,
    BLOCK_TOPK: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    expert = tl.arange(0, BLOCK_EXPERTS)
    is_expert = expert < NUM_EXPERTS
    logit = tl.zeros((BLOCK_EXPERTS,), tl.float32)
    for part in range(num_slices):
        place = (token * num_slices + part) * NUM_EXPERTS + expert
        logit += tl.load(partial_ptr + place, mask=is_expert, other=0.0)
    score = 1.0 / (1.0 + tl.exp(-logit))
    biased = score + tl.load(bias_ptr + expert, mask=is_expert, other=0.0)
    # NaN sorts first, as in the reference, so that a faulty row shows instead of choosing nobody.
    biased = tl.where(biased == biased, biased, float("inf"))
    bits = (biased + 0.0).to(tl.int32, bitcast=True)
    key = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.int64) * BLOCK_EXPERTS + (BLOCK_EXPERTS - 1 - expert)
    key = tl.where(is_expert, key, -(1 << 62))
    turns = tl.arange(0, BLOCK_TOPK)
    ids = tl.full((BLOCK_TOPK,), -1, tl.int64)
    chosen = tl.zeros((BLOCK_TOPK,), tl.float32)
    for turn in range(TOPK):
        best = tl.max(key, 0)
        is_best = key == best
        ids = tl.where(turns == turn, tl.sum(tl.where(is_best, expert, 0), 0).to(tl.int64), ids)
        # HAZARD: the weight is the score WITHOUT the bias.
        chosen = tl.where(turns == turn, tl.sum(tl.where(is_best, score, 0.0), 0), chosen)
        key = tl.where(is_best, -(1 << 62), key)
    weight = chosen / tl.sum(chosen, 0) * scaling_factor
    is_real = tl.load(positions_ptr + token) >= 0
    place = token * TOPK + turns
    tl.store(ids_ptr + place, tl.where(is_real, ids, -1), mask=turns < TOPK)
    tl.store(weights_ptr + place, tl.where(is_real, weight, 0.0), mask=turns < TOPK)


def route(
    x: Tensor,
    router_weight: Tensor,
    router_bias: Tensor,
    positions: Tensor,
    topk_experts: int,
    routed_scaling_factor: float,
) -> tuple[Tensor, Tensor]:
    """See the contract."""
    positions, router_bias = positions.contiguous(), router_bias.contiguous()
    x = x if x.stride(1) == 1 else x.contiguous()
    num_tokens, hidden_size = x.shape
    num_experts = router_weight.shape[0]
    ids = torch.empty((num_tokens, topk_experts), dtype=torch.int64, device=x.device)
    weights = torch.empty((num_tokens, topk_experts), dtype=torch.float32, device=x.device)
    if not num_tokens:
        return ids, weights
    num_slices = triton.cdiv(hidden_size, _SLICE)
    partial = torch.empty((num_tokens, num_slices, num_experts), dtype=torch.float32, device=x.device)
    block_experts = max(16, triton.next_power_of_2(num_experts))
    partial_scores_kernel[(triton.cdiv(num_tokens, _TILE_TOKENS), num_slices)](
        x,
        router_weight,
        partial,
        num_tokens,
        hidden_size,
        x.stride(0),
        num_slices,
        NUM_EXPERTS=num_experts,
        BLOCK_EXPERTS=block_experts,
        TILE_TOKENS=_TILE_TOKENS,
        SLICE=_SLICE,
        STEP=_STEP,
        num_warps=4,
    )
    choose_experts_kernel[(num_tokens,)](
        partial,
        router_bias,
        positions,
        ids,
        weights,
        num_slices,
        routed_scaling_factor,
        NUM_EXPERTS=num_experts,
        BLOCK_EXPERTS=block_experts,
        TOPK=topk_experts,
        BLOCK_TOPK=triton.next_power_of_2(topk_experts),
        num_warps=1,
    )
    return ids, weights
