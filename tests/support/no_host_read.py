"""A double that makes any host read of a device value fail, but for the places that may: `runner/handoff.py`, and the
CPU reference kernels, which are the device."""

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
}


class HostRead(AssertionError):
    """Somebody read a device value on the host."""


class NoHostRead(TorchFunctionMode):
    """While active, a read outside the allowed files raises HostRead."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        if (name in READS or self._indexes_by_mask(name, args)) and not self._is_allowed():
            raise HostRead(f"{name} outside runner/handoff.py")
        return func(*args, **(kwargs or {}))

    @staticmethod
    def _indexes_by_mask(name: str, args: tuple[Any, ...]) -> bool:
        if name not in ("__getitem__", "__setitem__"):
            return False
        keys = args[1] if isinstance(args[1], tuple) else (args[1],)
        return any(isinstance(key, torch.Tensor) and key.dtype == torch.bool for key in keys)

    @staticmethod
    def _is_allowed() -> bool:
        frame = inspect.currentframe()
        while frame is not None:
            file = frame.f_code.co_filename
            if file.endswith("runner/handoff.py") or ("/kernels/" in file and file.endswith("/reference.py")):
                return True
            frame = frame.f_back
        return False
