"""Token embedding, cut over the ranks by vocabulary."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from slipstream.layers.parts import WHOLE, DirectModule, WeightPart, empty_parameter, rows
from slipstream.parallel.group import TensorParallelGroup


class Embedding(DirectModule):
    """One row per token id.

    Args:
        vocab_size: rows over all ranks.
        hidden_size: width.
        group: the ranks.
        dtype: of the weight.
        device: of the weight.
    """

    def __init__(
        self,
        vocab_size: int,
        hidden_size: int,
        *,
        group: TensorParallelGroup,
        dtype: torch.dtype,
        device: torch.device | str,
    ) -> None:
        super().__init__()
        self._held = group.mesh.vocabulary(vocab_size)
        # [vocab_size / tp_size, hidden_size] in the model's dtype
        self.weight = empty_parameter(len(self._held), hidden_size, dtype=dtype, device=device)
        self.parts = (WeightPart("weight", "", (rows(self._held), WHOLE), (WHOLE, WHOLE)),)
        self._group = group

    def forward(self, token_ids: Tensor) -> Tensor:
        """Return [num_tokens, hidden_size] rows of [num_tokens] int64 ids, each 0 .. vocab_size - 1."""
        if self._group.mesh.tp_size == 1:
            return functional.embedding(token_ids, self.weight)
        is_held = (token_ids >= self._held.start) & (token_ids < self._held.stop)
        local_ids = torch.where(is_held, token_ids - self._held.start, 0)
        own = functional.embedding(local_ids, self.weight).masked_fill(~is_held.unsqueeze(1), 0.0)
        return self._group.all_reduce(own)
