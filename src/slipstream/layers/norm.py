"""Norms as modules: whole rows, and the heads of a fused attention projection."""

from __future__ import annotations

import torch
from torch import Tensor

from slipstream.kernels.norm.add_rms_norm.contract import add_rms_norm
from slipstream.kernels.norm.qk_norm_rope.contract import qk_norm_rope
from slipstream.kernels.norm.rms_norm.contract import rms_norm
from slipstream.layers.parts import WHOLE, DirectModule, WeightPart, empty_parameter


class RMSNorm(DirectModule):
    """Root-mean-square norm of whole rows.

    Args:
        hidden_size: width.
        eps: added to the mean square.
        gemma: the gain is 1 + weight; weights stay as stored.
        dtype: of the weight.
        device: of the weight.
    """

    def __init__(
        self, hidden_size: int, eps: float, *, gemma: bool, dtype: torch.dtype, device: torch.device | str
    ) -> None:
        super().__init__()
        # [hidden_size] in the model's dtype
        self.weight = empty_parameter(hidden_size, dtype=dtype, device=device)
        self.parts = (WeightPart("weight", "", (WHOLE,), (WHOLE,)),)
        self._eps = eps
        self._gemma = gemma

    def forward(self, x: Tensor) -> Tensor:
        """Return the norm of [num_tokens, hidden_size] rows."""
        return rms_norm(x, self.weight, self._eps, self._gemma)

    def forward_add(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """Return the norm of x + residual, and x + residual: the new residual stream."""
        return add_rms_norm(x, residual, self.weight, self._eps, self._gemma)


class HeadNorm(DirectModule):
    """Per-head norm and rotary embedding of all heads of a fused projection in one call.

    Args:
        heads: (name, how many heads) in the order of the projection; each name has a norm weight of its own.
        head_dim: width of a head.
        eps: added to the mean square.
        gemma: the gain is 1 + weight.
        dtype: of the weight.
        device: of the weight.
    """

    kind_of_head: Tensor  # [sum of heads] int64

    def __init__(
        self,
        heads: tuple[tuple[str, int], ...],
        head_dim: int,
        eps: float,
        *,
        gemma: bool,
        dtype: torch.dtype,
        device: torch.device | str,
    ) -> None:
        super().__init__()
        # [len(heads), head_dim] in the model's dtype
        self.weight = empty_parameter(len(heads), head_dim, dtype=dtype, device=device)
        self.parts = tuple(WeightPart("weight", name, (WHOLE,), (kind, WHOLE)) for kind, (name, _) in enumerate(heads))
        kinds = [kind for kind, (_, count) in enumerate(heads) for _ in range(count)]
        self.register_buffer("kind_of_head", torch.tensor(kinds, device=device), persistent=False)
        self._eps = eps
        self._gemma = gemma

    def forward(self, x: Tensor, rope_table: Tensor, positions: Tensor, first_head: int = 0) -> Tensor:
        """Return [num_tokens, n, head_dim] heads, normalised and rotated.

        Args:
            x: [num_tokens, n, head_dim]; all heads of the projection, or those from `first_head` on.
            rope_table: [max_positions, rotary_dim] float32.
            positions: [num_tokens] int64.
            first_head: place of x's first head in the projection.
        """
        kinds = self.kind_of_head[first_head:] if first_head else self.kind_of_head
        return qk_norm_rope(x, self.weight, kinds, self._eps, self._gemma, rope_table, positions)
