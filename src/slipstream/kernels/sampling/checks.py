"""One cheap check that the contracts of sampling, draft and step share: shapes and dtypes, never values."""

from __future__ import annotations

import torch
from torch import Tensor

from slipstream.kernels.faults import shape_fault

INTEGERS = (torch.int32, torch.int64)
"""Dtypes that hold counts, ids and positions."""


def require(operation: str, name: str, tensor: Tensor, shape: tuple[int, ...], *dtypes: torch.dtype) -> None:
    """Raise unless a tensor has a shape and one of the dtypes.

    Args:
        operation: the contract that asks.
        name: the argument.
        tensor: the argument's value.
        shape: the extent of every axis; -1 accepts any.
        dtypes: allowed dtypes.

    Raises:
        ShapeError: an axis or the dtype disagrees.
    """
    given = tensor.shape
    is_fit = len(given) == len(shape) and tensor.dtype in dtypes
    if not is_fit or any(want not in (-1, have) for want, have in zip(shape, given, strict=True)):
        extents = ", ".join("any" if extent == -1 else str(extent) for extent in shape)
        names = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        raise shape_fault(operation, name, tensor, f"[{extents}] {names}")
