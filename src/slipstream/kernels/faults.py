"""The message of a violated contract. Checks stay inline in the contracts: they run on every call."""

from __future__ import annotations

from torch import Tensor

from slipstream.base.errors import ShapeError


def shape_fault(operation: str, name: str, tensor: Tensor, allowed: str) -> ShapeError:
    """Return the error for an operand whose shape, dtype or strides disagree with a contract.

    Args:
        operation: the contract.
        name: the argument.
        tensor: its value.
        allowed: what the contract accepts, in the words of its docstring.
    """
    dtype = str(tensor.dtype).removeprefix("torch.")
    return ShapeError(f"{operation}: {name} is {list(tensor.shape)} {dtype}, allowed is {allowed}; fix the caller")
