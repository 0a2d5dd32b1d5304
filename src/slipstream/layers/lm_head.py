"""The head: logits over the vocabulary, cut over the ranks by vocabulary."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from slipstream.layers.parts import WHOLE, DirectModule, WeightPart, matrix_parameter, rows
from slipstream.parallel.group import TensorParallelGroup


class LmHead(DirectModule):
    """hidden @ weight.T in float32.

    Args:
        vocab_size: rows over all ranks.
        hidden_size: columns.
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
        held = group.mesh.vocabulary(vocab_size)
        # [vocab_size / tp_size, hidden_size] in the model's dtype
        self.weight = matrix_parameter(len(held), hidden_size, dtype=dtype, device=device)
        self.parts = (WeightPart("weight", "", (rows(held), WHOLE), (WHOLE, WHOLE)),)
        self._group = group

    def forward(self, hidden: Tensor) -> Tensor:
        """Return [num_tokens, vocab_size] float32 logits, the whole vocabulary on every rank.

        Numerics: float32 results of products that accumulate in float32. Logits rounded to bfloat16 would tie.
        """
        if self.weight.dtype == torch.float32:
            own = functional.linear(hidden, self.weight)
        elif self.weight.device.type == "cuda":
            own = torch.mm(hidden, self.weight.t(), out_dtype=torch.float32)
        else:
            own = functional.linear(hidden.float(), self.weight.float())
        return self._group.all_gather(own, dim=1)
