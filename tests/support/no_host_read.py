"""A double that makes any host read of a device value fail, but for the places that may: `runner/handoff.py`, and the
CPU reference kernels, which are the device.

On a CPU a read is seen by the call that asks for it, not by a wait. What no call tells is not seen: data pointers,
`torch.tensor(tensor)`, `tensor.copy_` into host memory, a library that waits inside a kernel.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

READS = {
    "item",
    "tolist",
    "numpy",
    "cpu",
    "__bool__",
    "__int__",
    "__float__",
    "__index__",
    "__contains__",
    "nonzero",
    "masked_select",
    "unique",
    "allclose",
    "equal",
    "__array__",
    "__complex__",
    "__format__",
    "__repr__",
    "argwhere",
    "bincount",
    "is_nonzero",
    "unique_consecutive",
}


class HostRead(AssertionError):
    """Somebody read a device value on the host."""


class NoHostRead(TorchFunctionMode):
    """While active, a read outside the allowed files raises HostRead."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        is_read = name in READS or self._indexes_by_mask(name, args) or self._reads_by_form(name, args, kwargs or {})
        if is_read and not self._is_allowed():
            raise HostRead(f"{name} outside runner/handoff.py")
        return func(*args, **(kwargs or {}))

    @staticmethod
    def _indexes_by_mask(name: str, args: tuple[Any, ...]) -> bool:
        if name not in ("__getitem__", "__setitem__"):
            return False
        keys = args[1] if isinstance(args[1], tuple) else (args[1],)
        return any(isinstance(key, torch.Tensor) and key.dtype == torch.bool for key in keys)

    @staticmethod
    def _reads_by_form(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether a call that is harmless in another form reads, or has a result whose shape depends on values."""
        if name == "to":
            given = [*args[1:2], *([kwargs["device"]] if kwargs.get("device") is not None else [])]
            # On a CPU every device is "cpu": a name is a move to the host, a `tensor.device` is none.
            return any(isinstance(where, str) for where in given)
        if name == "where":
            return len(args) + len(kwargs) == 1
        if name == "repeat_interleave":
            repeats = kwargs.get("repeats", args[1] if len(args) > 1 else None)
            is_bare = len(args) + ("repeats" in kwargs) == 1
            return (is_bare or isinstance(repeats, torch.Tensor)) and kwargs.get("output_size") is None
        if name in ("split", "tensor_split"):
            return any(isinstance(part, torch.Tensor) for part in (*args[1:], *kwargs.values()))
        return False

    @staticmethod
    def _is_allowed() -> bool:
        frame = inspect.currentframe()
        while frame is not None:
            file = frame.f_code.co_filename
            if file.endswith("runner/handoff.py") or (
                "/kernels/" in file and file.endswith(("/reference.py", "/cpu.py"))
            ):
                return True
            frame = frame.f_back
        return False
