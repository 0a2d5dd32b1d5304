"""Choose and load the implementation of an operation, once per (operation, device type).

Implementations are reached by module name, never by an import statement, so that a contract can be imported where
the faster code cannot.
"""

from __future__ import annotations

import importlib
from functools import cache

from slipstream.base.errors import KernelError
from slipstream.kernels.registry import IMPLEMENTATIONS, Kernel


@cache
def select(operation: str, device_type: str, implementation: str = "auto") -> Kernel:
    """Return the kernel of an operation for a device; the answer is cached for the life of the process.

    Args:
        operation: family and name, for example `attention/index_score`.
        device_type: `torch.device.type` of the operands.
        implementation: `auto` for the highest priority that fits, or the name of one.

    Raises:
        KernelError: if nothing offers the operation on this device, or the implementation is unknown.
    """
    offers = [rule for rule in IMPLEMENTATIONS if rule.fits(operation, device_type)]
    wanted = [rule for rule in offers if implementation in ("auto", rule.name)]
    if not wanted:
        names = ", ".join(sorted(rule.name for rule in offers)) or "none"
        raise KernelError(
            f"no implementation {implementation!r} of {operation!r} for device {device_type!r}; offered: {names}. "
            "Use 'auto', or move the tensors to a supported device."
        )
    return load(operation, max(wanted, key=lambda rule: rule.priority).name)


@cache
def load(operation: str, implementation: str) -> Kernel:
    """Import one implementation by name.

    Raises:
        KernelError: if the operation's folder has no such module, or the module no such function.
    """
    module_name = f"slipstream.kernels.{operation.replace('/', '.')}.{implementation}"
    function_name = operation.rsplit("/", 1)[-1]
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # A library that the implementation itself misses is another fault: let it through unchanged.
        if error.name is None or not module_name.startswith(error.name):
            raise
        raise KernelError(
            f"operation {operation!r} has no implementation {implementation!r} (no module {module_name}); "
            "operations are the folders that hold a contract.py."
        ) from error
    function = getattr(module, function_name, None)
    if function is None:
        raise KernelError(f"module {module_name} must define {function_name}(), the operation of {operation!r}")
    return Kernel(operation, implementation, function)
