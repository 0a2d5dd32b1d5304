"""A mixture of experts: router, routed experts, and an optional shared expert that is neither scaled nor gated."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from slipstream.kernels.moe.experts.contract import experts
from slipstream.kernels.moe.route.contract import route
from slipstream.layers.mlp import DenseMlp, SwigluOai
from slipstream.layers.parts import WHOLE, DirectModule, WeightPart, matrix_parameter, rows
from slipstream.parallel.group import TensorParallelGroup


@dataclass(frozen=True, slots=True)
class MoeGeometry:
    """Sizes and constants of a mixture, over all ranks.

    Args:
        shared_intermediate_size: of all shared experts together; 0 when there is none.
        has_routing_bias: the checkpoint stores a bias that moves the choice of experts.
    """

    hidden_size: int
    num_experts: int
    topk_experts: int
    expert_intermediate_size: int
    shared_intermediate_size: int
    routed_scaling_factor: float
    has_routing_bias: bool
    swiglu_alpha: float
    swiglu_limit: float


class Router(DirectModule):
    """Scores of all experts, in float32 whatever the model's dtype. The same on every rank.

    Without a stored bias, `bias` stays zero and has no part.
    """

    def __init__(self, geometry: MoeGeometry, *, device: torch.device | str) -> None:
        super().__init__()
        shape = (geometry.num_experts, geometry.hidden_size)
        # holds [num_experts, hidden_size], float32 values
        self.weight = matrix_parameter(*shape, dtype=torch.float32, device=device)
        # holds [num_experts], float32 values
        self.bias = nn.Parameter(torch.zeros(shape[0], dtype=torch.float32, device=device), requires_grad=False)
        self.parts = (WeightPart("weight", "", (WHOLE, WHOLE), (WHOLE, WHOLE)),)
        if geometry.has_routing_bias:
            self.parts += (WeightPart("bias", "bias", (WHOLE,), (WHOLE,)),)
        self._topk_experts = geometry.topk_experts
        self._scaling_factor = geometry.routed_scaling_factor

    def forward(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return [num_tokens, topk_experts] ids and weights."""
        return route(x, self.weight, self.bias, positions, self._topk_experts, self._scaling_factor)


class Experts(DirectModule):
    """Weights of all routed experts, each cut over the ranks along its inner axis."""

    def __init__(
        self, geometry: MoeGeometry, *, group: TensorParallelGroup, dtype: torch.dtype, device: torch.device | str
    ) -> None:
        super().__init__()
        held = group.mesh.columns(geometry.expert_intermediate_size, "expert_intermediate_size")
        num_experts, width = geometry.num_experts, len(held)
        # [num_experts, 2 * width, hidden_size]; gate rows, then up rows
        self.w13 = matrix_parameter(num_experts, 2 * width, geometry.hidden_size, dtype=dtype, device=device)
        # [num_experts, hidden_size, width] in the model's dtype
        self.w2 = matrix_parameter(num_experts, geometry.hidden_size, width, dtype=dtype, device=device)
        self.parts = (
            WeightPart("w13", "gate", (rows(held), WHOLE), (slice(0, width), WHOLE)),
            WeightPart("w13", "up", (rows(held), WHOLE), (slice(width, 2 * width), WHOLE)),
            WeightPart("w2", "down", (WHOLE, rows(held)), (WHOLE, WHOLE)),
        )
        self._alpha = geometry.swiglu_alpha
        self._limit = geometry.swiglu_limit

    def forward(self, x: Tensor, expert_ids: Tensor, expert_weights: Tensor) -> Tensor:
        """Return [num_tokens, hidden_size], this rank's part of the sum."""
        return experts(x, expert_ids, expert_weights, self.w13, self.w2, self._alpha, self._limit)


class Moe(DirectModule):
    """Routed experts plus the shared expert.

    Args:
        geometry: sizes over all ranks.
        group: the ranks.
        dtype: of the weights, the router's excepted.
        device: of the weights.
    """

    def __init__(
        self, geometry: MoeGeometry, *, group: TensorParallelGroup, dtype: torch.dtype, device: torch.device | str
    ) -> None:
        super().__init__()
        self.router = Router(geometry, device=device)
        self.experts = Experts(geometry, group=group, dtype=dtype, device=device)
        self.shared: DenseMlp | None = None
        if geometry.shared_intermediate_size:
            self.shared = DenseMlp(
                geometry.hidden_size,
                geometry.shared_intermediate_size,
                SwigluOai(geometry.swiglu_alpha, geometry.swiglu_limit),
                group=group,
                dtype=dtype,
                device=device,
                reduce=False,
            )
        self._group = group

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """Return [num_tokens, hidden_size]; tokens at position -1 are not routed.

        Args:
            x: [num_tokens, hidden_size].
            positions: [num_tokens] int64.
        """
        expert_ids, expert_weights = self.router.forward(x, positions)
        mixed = self.experts.forward(x, expert_ids, expert_weights)
        if self.shared is not None:
            mixed = mixed + self.shared.forward(x)
        return self._group.all_reduce(mixed)
