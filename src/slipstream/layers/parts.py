"""Where the tensors of a checkpoint land in the parameters of one rank.

A parameter may hold several tensors (fused projections) or a slice of one (tensor parallelism). Each module lists its
parts; a loader does `parameter[part.target] = tensor[part.source]` and needs to know nothing else.

Parameters hold the model's dtype today. A quantised format takes their place inside the module that owns them: its
parts keep their names, and rows and columns stay multiples of the format's scale group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

WHOLE = slice(None)
"""The whole of an axis."""


class DirectModule(nn.Module):
    """A module whose parameters and submodules are plain attributes as well.

    `nn.Module` finds them only after the ordinary lookup has failed and built its error, on every access; with a
    batch of one, those lookups cost as much as a tenth of a decode step.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        """Register as `nn.Module` does, and keep the value where the ordinary lookup finds it."""
        super().__setattr__(name, value)
        if isinstance(value, (nn.Parameter, nn.Module)):
            self.__dict__[name] = value


@dataclass(frozen=True, slots=True)
class WeightPart:
    """One tensor of a checkpoint, as far as this rank needs it.

    Args:
        parameter: attribute of the module.
        name: which tensor: q, k, v, index_q, index_k, gate, up, down, or empty for the module's only one.
        source: index into the full tensor, one entry per axis.
        target: index into the parameter; for experts, into one expert's matrix.
    """

    parameter: str
    name: str
    source: tuple[slice, ...]
    target: tuple[slice | int, ...]


def part_named(parts: tuple[WeightPart, ...], name: str) -> WeightPart:
    """Return the part of that name; KeyError when there is none."""
    for part in parts:
        if part.name == name:
            return part
    raise KeyError(name)


def rows(held: range) -> slice:
    """Return the slice of a range of step 1."""
    return slice(held.start, held.stop)


def head_rows(heads: range, head_dim: int) -> range:
    """Return the rows of a projection that belong to some heads."""
    return range(heads.start * head_dim, heads.stop * head_dim)


def empty_parameter(*shape: int, dtype: torch.dtype, device: torch.device | str) -> nn.Parameter:
    """Return an uninitialised parameter without a gradient; a loader fills it."""
    values: Tensor = torch.empty(*shape, dtype=dtype, device=device)
    return nn.Parameter(values, requires_grad=False)


def matrix_parameter(*shape: int, dtype: torch.dtype, device: torch.device | str) -> nn.Parameter:
    """Return an uninitialised parameter of matrices [..., out_features, in_features], laid out for `x @ weight.T`.

    On the CPU a float32 matrix is stored column by column. A product with few rows of x only reads the weight once,
    and reads it nearly twice as fast when the outputs of one input are neighbours (measured with 1 to 8 rows). The
    shape, and so every slice that a loader writes, is the same in both layouts.
    """
    if torch.device(device).type != "cpu" or dtype != torch.float32:
        return empty_parameter(*shape, dtype=dtype, device=device)
    *outer, out_features, in_features = shape
    values = torch.empty(*outer, in_features, out_features, dtype=dtype, device=device)
    return nn.Parameter(values.transpose(-1, -2), requires_grad=False)
