"""The dense MLP and its activations; also the shared expert of a mixture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from slipstream.kernels.moe.swiglu_oai.contract import swiglu_oai
from slipstream.layers.linear import HeldRows, MergedColumnLinear, RowLinear
from slipstream.layers.parts import DirectModule
from slipstream.parallel.group import TensorParallelGroup


@dataclass(frozen=True, slots=True)
class SwigluOai:
    """(up + 1) * gate * sigmoid(alpha * gate) of clamped halves; see `kernels.moe.swiglu_oai`."""

    alpha: float
    limit: float

    def __call__(self, gate_up: Tensor) -> Tensor:
        """Return [num_tokens, n] of [num_tokens, 2 n]."""
        return swiglu_oai(gate_up, self.alpha, self.limit)


@dataclass(frozen=True, slots=True)
class Silu:
    """silu(gate) * up, without clamps: the activation of EAGLE-3 heads."""

    def __call__(self, gate_up: Tensor) -> Tensor:
        """Return [num_tokens, n] of [num_tokens, 2 n]; float32 inside, one rounding."""
        gate, up = gate_up.float().chunk(2, dim=1)
        return (functional.silu(gate) * up).to(gate_up.dtype)


class DenseMlp(DirectModule):
    """down(activation(gate_up(x))).

    Args:
        hidden_size: input and output width.
        intermediate_size: inner width over all ranks.
        activation: of [num_tokens, 2 n] to [num_tokens, n].
        group: the ranks.
        dtype: of the weights.
        device: of the weights.
        reduce: False leaves the sum over ranks to the caller.
    """

    def __init__(
        self,
        hidden_size: int,
        intermediate_size: int,
        activation: Callable[[Tensor], Tensor],
        *,
        group: TensorParallelGroup,
        dtype: torch.dtype,
        device: torch.device | str,
        reduce: bool = True,
    ) -> None:
        super().__init__()
        held = group.mesh.columns(intermediate_size, "intermediate_size")
        pieces = (HeldRows("gate", held), HeldRows("up", held))
        self.gate_up_proj = MergedColumnLinear(hidden_size, pieces, dtype=dtype, device=device)
        self.down_proj = RowLinear(
            intermediate_size, hidden_size, group=group, dtype=dtype, device=device, reduce=reduce
        )
        self._activation = activation

    def forward(self, x: Tensor) -> Tensor:
        """Return [num_tokens, hidden_size] of [num_tokens, hidden_size]."""
        return self.down_proj.forward(self._activation(self.gate_up_proj.forward(x)))
