"""`experts_nvfp4` in Triton: lists, then both products and the activation in one launch, then a sum over the slots.

The middle kernel is persistent. Its thread blocks, all of them on the GPU at once, take pieces of the first product in
turn, then pieces of the second; the last block to finish a piece of gate and up adds the split sums in their order and
applies the activation, and a piece of the second product begins, its weights already in registers, as soon as its
tile's activations are counted in. Nothing is read on the host; who comes last changes no result; splits depend on the
matrices alone, so a token's row does not depend on its batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from slipstream.base.errors import KernelError
from slipstream.kernels.moe.experts_nvfp4.layout import TILE
from slipstream.kernels.moe.experts_nvfp4.triton_kernels import feed_forward_kernel, lists_kernel, sum_slots_kernel

_SCAN = 256
_FEW_TOKENS = 8
_PREFILL_TOKENS = 256
_SUM_COLUMNS = 1024
_SHARED_BYTES, _RESERVED_BYTES = 233_472, 1024
"""Shared memory of a multiprocessor, and what a thread block takes of it beyond its own."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How the work is cut; results depend on `split` alone.

    Args:
        split: parts of the hidden axis in the first product.
        rows: rows of a weight tile that one thread block takes, 64 or 128.
        stages: tiles of the first product in flight.
        preload: tiles of the second product, 0 to 3, that are read before its inputs are waited for.
        blocks_per_processor: thread blocks that share a multiprocessor; registers and shared memory must allow them.
        num_warps: of a thread block.
        chained: each kernel of an operation is launched before its predecessor ends and waits for it itself.
    """

    split: int
    rows: int = 64
    stages: int = 4
    preload: int = 3
    blocks_per_processor: int = 4
    num_warps: int = 4
    chained: bool = True

    @property
    def max_registers(self) -> int:
        """Registers of a thread that let all thread blocks be on the GPU at once."""
        return min(255, 65536 // (32 * self.num_warps * self.blocks_per_processor) // 8 * 8)

    def check(self, block_tokens: int) -> None:
        """Refuse a plan whose thread blocks might not all be on the GPU at once: they would wait for ever.

        Args:
            block_tokens: pairs of a tile.

        Raises:
            KernelError: the tiles in flight take too much shared memory.
        """
        inputs = TILE * block_tokens * 2
        weights = self.rows * (TILE // 2 + 4 * 8)
        most = (self.stages - 1) * weights + (self.stages + 1) * inputs
        if self.blocks_per_processor * (most + _RESERVED_BYTES) > _SHARED_BYTES:
            raise KernelError(
                f"experts_nvfp4: {self.blocks_per_processor} thread blocks with {most} bytes of shared memory do not "
                f"fit the {_SHARED_BYTES} of a multiprocessor; take fewer stages, rows or blocks_per_processor"
            )


def plan_for(num_tokens: int, hidden_size: int, width: int) -> Plan:
    """Return how to cut the work of one rank's slice of an expert.

    Args:
        num_tokens: changes how, never what: the split is the same for all.
        hidden_size: a multiple of 128.
        width: intermediate_size as held by this rank, a multiple of 128.
    """
    # The narrower the slice, the fewer its pieces: then the hidden axis is split to occupy the GPU.
    split = 2 if width <= 1024 and hidden_size // TILE % 2 == 0 else 1
    if num_tokens < _FEW_TOKENS and width <= 512:
        return Plan(split=split)
    if num_tokens < _PREFILL_TOKENS:
        return Plan(split=split, rows=128, stages=3, preload=2, blocks_per_processor=3)
    # Sums of 64 tokens take the registers that weights read ahead would take.
    return Plan(split=split, rows=128, stages=3, preload=0, blocks_per_processor=2)


def experts_nvfp4(
    x: Tensor,
    expert_ids: Tensor,
    expert_weights: Tensor,
    w13: Tensor,
    w13_scale: Tensor,
    w2: Tensor,
    w2_scale: Tensor,
    alpha: float,
    limit: float,
) -> Tensor:
    """See the contract."""
    if not expert_ids.numel():
        return torch.zeros_like(x)
    plan = plan_for(x.shape[0], x.shape[1], w2.shape[2] * TILE)
    ids = expert_ids.contiguous()
    lists = make_lists(plan, ids, w2.shape[0], w2.shape[2] * TILE)
    by_pair = multiply(plan, x, lists, (w13, w13_scale), (w2, w2_scale), (alpha, limit))
    return sum_slots(plan, by_pair, ids, expert_weights.contiguous(), x.dtype)


@dataclass(frozen=True, slots=True)
class Lists:
    """Which tokens each thread block works on.

    Args:
        topk: experts per token.
        max_tiles: the most tiles that any routing of so many tokens can need.
        block_tokens: pairs of a tile.
    """

    order: Tensor  # [num_pairs] int32; pairs (token, slot) by expert, padding left out
    tiles: Tensor  # [1 + 4 * max_tiles] int32; how many tiles, then of each expert, first pair of `order`, pairs
    counters: Tensor  # [max_tiles * (1 + pieces)] int32 zeros; of activations ready, then of splits done
    topk: int
    max_tiles: int
    block_tokens: int


def make_lists(plan: Plan, expert_ids: Tensor, num_experts: int, width: int) -> Lists:
    """Sort the pairs by expert on the device and clear the counters.

    Args:
        plan: how the work is cut.
        expert_ids: [num_tokens, topk_experts] int64, contiguous, not empty.
        num_experts: how many there are.
        width: intermediate_size as held by this rank.
    """
    num_tokens, topk = expert_ids.shape
    num_pairs = num_tokens * topk
    block_tokens = 16 if num_tokens < _PREFILL_TOKENS else 64
    max_tiles = min(num_pairs, triton.cdiv(num_pairs, block_tokens) + num_experts)
    sizes = [num_pairs, 4 * (1 + max_tiles), max_tiles * (1 + 2 * width // plan.rows)]
    integers = torch.empty(sum(sizes), dtype=torch.int32, device=expert_ids.device)
    order, tiles, counters = integers.split(sizes)
    lists_kernel[(num_experts,)](
        expert_ids,
        order,
        tiles,
        counters,
        num_pairs,
        sizes[2],
        BLOCK_EXPERTS=max(32, triton.next_power_of_2(num_experts)),
        BLOCK_TOKENS=block_tokens,
        BLOCK=min(_SCAN, max(32, triton.next_power_of_2(num_pairs))),
        num_warps=1,
        **_chaining(plan, expert_ids),
    )
    return Lists(order, tiles, counters, topk, max_tiles, block_tokens)


def multiply(
    plan: Plan,
    x: Tensor,
    lists: Lists,
    first: tuple[Tensor, Tensor],
    second: tuple[Tensor, Tensor],
    activation: tuple[float, float],
) -> Tensor:
    """Return the output of every pair, before its weight; rows of padding are not written.

    Args:
        plan: how the work is cut.
        x: as the contract has it.
        lists: of `make_lists`, fresh: its counters are used up.
        first: w13 and w13_scale.
        second: w2 and w2_scale.
        activation: alpha and limit.

    Returns:
        [num_pairs, hidden_size] float32.
    """
    plan.check(lists.block_tokens)
    x = x if x.stride(1) == 1 else x.contiguous()
    (w13, w13_scale), (w2, w2_scale) = ([value.contiguous() for value in pair] for pair in (first, second))
    hidden, width, num_pairs = x.shape[1], w2.shape[2] * TILE, len(lists.order)
    partial = torch.empty((plan.split, num_pairs, 2 * width), dtype=torch.float32, device=x.device)
    active = torch.empty((num_pairs, width), dtype=x.dtype, device=x.device)
    by_pair = torch.empty((num_pairs, hidden), dtype=torch.float32, device=x.device)
    feed_forward_kernel[(num_blocks(plan, x.device),)](
        x,
        w13,
        w13_scale,
        w2,
        w2_scale,
        lists.order,
        lists.tiles,
        lists.counters,
        partial,
        active,
        by_pair,
        x.stride(0),
        num_pairs,
        lists.max_tiles,
        *activation,
        TOPK=lists.topk,
        HIDDEN=hidden,
        WIDTH=width,
        BLOCK_ROWS=plan.rows,
        BLOCK_TOKENS=lists.block_tokens,
        SPLIT=plan.split,
        STAGES=plan.stages,
        PRELOAD=min(plan.preload, width // TILE),
        FAST=x.device.type != "cpu",
        num_warps=plan.num_warps,
        maxnreg=plan.max_registers,
        **_chaining(plan, x),
    )
    return by_pair


def sum_slots(plan: Plan, by_pair: Tensor, expert_ids: Tensor, expert_weights: Tensor, dtype: torch.dtype) -> Tensor:
    """Return every token's weighted sum over its slots.

    Args:
        plan: how the work is cut.
        by_pair: of `multiply`.
        expert_ids: as the contract has it, contiguous.
        expert_weights: as the contract has it, contiguous.
        dtype: of the result.
    """
    (num_tokens, topk), hidden = expert_ids.shape, by_pair.shape[1]
    out = torch.empty((num_tokens, hidden), dtype=dtype, device=by_pair.device)
    block = min(_SUM_COLUMNS, triton.next_power_of_2(hidden))
    sum_slots_kernel[(num_tokens, triton.cdiv(hidden, block))](
        by_pair,
        expert_ids,
        expert_weights,
        out,
        HIDDEN=hidden,
        TOPK=topk,
        BLOCK=block,
        num_warps=4,
        **_chaining(plan, by_pair),
    )
    return out


def num_blocks(plan: Plan, device: torch.device) -> int:
    """Return the thread blocks of the persistent kernel: as many as can be on the GPU at once, one when interpreted."""
    # INVARIANT: a block may wait for others, so all of them must run; interpreted programs run one after the other.
    if device.type != "cuda":
        return 1
    return torch.cuda.get_device_properties(device).multi_processor_count * plan.blocks_per_processor


def _chaining(plan: Plan, tensor: Tensor) -> dict[str, bool]:
    """Return the launch arguments that let a kernel start before its predecessor ends."""
    is_chained = plan.chained and tensor.device.type != "cpu"
    return {"CHAINED": True, "launch_pdl": True} if is_chained else {"CHAINED": False}
