"""Matrix products cut over the ranks by rows or by columns. No layer of the family has a bias.

The `weight` of each module is where a quantised format (MXFP8, NVFP4) plugs in: the module keeps its name, parts and
forward, and holds packed values and scales instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from slipstream.layers.parts import WHOLE, DirectModule, WeightPart, matrix_parameter, rows
from slipstream.parallel.group import TensorParallelGroup


class ReplicatedLinear(DirectModule):
    """x @ weight.T with the whole matrix on every rank.

    Args:
        in_features: columns.
        out_features: rows.
        dtype: of the weight.
        device: of the weight.
    """

    def __init__(self, in_features: int, out_features: int, *, dtype: torch.dtype, device: torch.device | str) -> None:
        super().__init__()
        # [out_features, in_features] in the model's dtype
        self.weight = matrix_parameter(out_features, in_features, dtype=dtype, device=device)
        self.parts = (WeightPart("weight", "", (WHOLE, WHOLE), (WHOLE, WHOLE)),)

    def forward(self, x: Tensor) -> Tensor:
        """Return [num_tokens, out_features] of [num_tokens, in_features]."""
        return functional.linear(x, self.weight)


class ColumnLinear(DirectModule):
    """x @ weight.T with the output axis cut over the ranks."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        group: TensorParallelGroup,
        dtype: torch.dtype,
        device: torch.device | str,
    ) -> None:
        super().__init__()
        held = group.mesh.columns(out_features, "out_features")
        # [out_features / tp_size, in_features] in the model's dtype
        self.weight = matrix_parameter(len(held), in_features, dtype=dtype, device=device)
        self.parts = (WeightPart("weight", "", (rows(held), WHOLE), (WHOLE, WHOLE)),)

    def forward(self, x: Tensor) -> Tensor:
        """Return this rank's [num_tokens, out_features / tp_size] of [num_tokens, in_features]."""
        return functional.linear(x, self.weight)


@dataclass(frozen=True, slots=True)
class HeldRows:
    """A projection inside a merged one: its name and the rows of the full matrix that this rank holds."""

    name: str
    held: range


class MergedColumnLinear(DirectModule):
    """Several projections of the same input in one product; the caller says which rows of each a rank holds.

    Args:
        in_features: columns.
        pieces: the projections in the order of the output.
        dtype: of the weight.
        device: of the weight.
    """

    def __init__(
        self,
        in_features: int,
        pieces: tuple[HeldRows, ...],
        *,
        dtype: torch.dtype,
        device: torch.device | str,
    ) -> None:
        super().__init__()
        self.sizes = tuple(len(piece.held) for piece in pieces)
        # [sum of sizes, in_features] in the model's dtype
        self.weight = matrix_parameter(sum(self.sizes), in_features, dtype=dtype, device=device)
        parts: list[WeightPart] = []
        start = 0
        for piece in pieces:
            target = slice(start, start + len(piece.held))
            parts.append(WeightPart("weight", piece.name, (rows(piece.held), WHOLE), (target, WHOLE)))
            start = target.stop
        self.parts = tuple(parts)

    def forward(self, x: Tensor) -> Tensor:
        """Return [num_tokens, sum of sizes] of [num_tokens, in_features]."""
        return functional.linear(x, self.weight)


class RowLinear(DirectModule):
    """x @ weight.T with the input axis cut over the ranks and the results summed.

    Args:
        in_features: columns of the full matrix.
        out_features: rows.
        group: the ranks.
        dtype: of the weight.
        device: of the weight.
        reduce: False leaves the partial sum to the caller, who adds others to it first.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        group: TensorParallelGroup,
        dtype: torch.dtype,
        device: torch.device | str,
        reduce: bool = True,
    ) -> None:
        super().__init__()
        held = group.mesh.columns(in_features, "in_features")
        # [out_features, in_features / tp_size] in the model's dtype
        self.weight = matrix_parameter(out_features, len(held), dtype=dtype, device=device)
        self.parts = (WeightPart("weight", "", (WHOLE, rows(held)), (WHOLE, WHOLE)),)
        self._group = group
        self._reduce = reduce

    def forward(self, x: Tensor) -> Tensor:
        """Return [num_tokens, out_features] of this rank's [num_tokens, in_features / tp_size]."""
        partial = functional.linear(x, self.weight)
        return self._group.all_reduce(partial) if self._reduce else partial
