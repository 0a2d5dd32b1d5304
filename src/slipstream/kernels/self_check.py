"""Compare the kernels of a device with their references on the named cases of every operation.

What `slipstream doctor` asks of a GPU: seconds, and no file outside the package. Not here: the float64 oracles and
the real model's shapes, which the tests have.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from slipstream.kernels.capability import check_capability
from slipstream.kernels.case import Case, Tolerance
from slipstream.kernels.registry import IMPLEMENTATIONS, Kernel
from slipstream.kernels.select import load, select

BIT_FOR_BIT = frozenset({"draft", "sampling", "step"})
"""Families whose results decide tokens: whatever their case tolerates of an oracle, a kernel equals its reference."""

_REFERENCE = "reference"
Choose = Callable[[str, str], Kernel]


@dataclass(frozen=True, slots=True)
class Findings:
    """What a run found.

    Args:
        num_operations: with an implementation of their own for the device.
        num_cases: that were run.
        faults: one sentence per operation that failed.
    """

    num_operations: int
    num_cases: int
    faults: tuple[str, ...]


def faster_operations(device_type: str) -> tuple[str, ...]:
    """Return the operations that have more than a reference on a device, in order."""
    rules = (rule for rule in IMPLEMENTATIONS if device_type in rule.device_types and rule.operations)
    return tuple(sorted({operation for rule in rules for operation in rule.operations or ()}))


def check_kernels(
    device_type: str,
    operations: Iterable[str] | None = None,
    *,
    choose: Choose | None = None,
    max_cases: int | None = None,
) -> Findings:
    """Run named cases of the operations; a fault ends an operation, never the run.

    Args:
        device_type: where the kernels run; the references run on the CPU.
        operations: family and name of each; None takes all that have more than a reference there.
        choose: operation and device type -> kernel; None takes what the engine takes.
        max_cases: of an operation, spread over all it has, where the whole list would take too long; None runs all.

    Raises:
        ConfigError: a GPU that the kernels were not written for.
    """
    check_capability(torch.device(device_type))
    chosen = faster_operations(device_type) if operations is None else tuple(operations)
    num_cases, faults = 0, []
    for operation in chosen:
        try:
            kernel = (choose or select)(operation, device_type)
            for case in _spread(cases_of(operation), max_cases):
                num_cases += 1
                problem = check_case(kernel, case, device_type)
                if problem is not None:
                    faults.append(f"{operation} ({kernel.implementation}), case {case.name}: {problem}")
                    break
        except Exception as error:  # noqa: BLE001 - a kernel that does not compile or launch raises anything
            faults.append(f"{operation}: {type(error).__name__}: {error}")
    return Findings(num_operations=len(chosen), num_cases=num_cases, faults=tuple(faults))


def _spread(cases: tuple[Case, ...], count: int | None) -> tuple[Case, ...]:
    """Return `count` of the cases, evenly from the first on, or all."""
    if count is None or len(cases) <= count:
        return cases
    return tuple(cases[place * len(cases) // count] for place in range(count))


def cases_of(operation: str) -> tuple[Case, ...]:
    """Return the named cases of an operation."""
    return _module(operation, "cases").CASES


def check_case(kernel: Kernel, case: Case, device_type: str) -> str | None:
    """Return in which way a kernel and its reference disagree on a case, or None.

    Everything that either returns or may have written is compared.
    """
    given = arguments_of(kernel.operation, case)
    reference = load(kernel.operation, _REFERENCE)
    own = {name: _moved(value, device_type) for name, value in arguments_of(kernel.operation, case).items()}
    with torch.inference_mode():
        expected = (*_as_tuple(reference.function(*given.values())), *given.values())
        actual = (*_as_tuple(kernel.function(*own.values())), *own.values())
    if len(actual) != len(expected):
        return f"{len(actual) - len(own)} results, the reference has {len(expected) - len(given)}"
    is_exact = kernel.operation.split("/", 1)[0] in BIT_FOR_BIT
    for result, want in zip(actual, expected, strict=True):
        if isinstance(want, Tensor) != isinstance(result, Tensor):
            return "a result that only one of kernel and reference has"
        if isinstance(want, Tensor) and not agrees(result.cpu(), want, None if is_exact else case.tolerance):
            return f"it differs from the reference; the case guards against: {case.guards}"
    return None


def agrees(actual: Tensor, expected: Tensor, tolerance: Tolerance | None) -> bool:
    """Return whether a result is as near to the reference's as both may be: NaN only where the other has it.

    Args:
        actual: on the CPU.
        expected: the reference's result.
        tolerance: of each of the two against the exact result, so that they may be twice as far apart; None, or no
            tolerance at all, is bit for bit, and so are integers always.
    """
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return False
    if not expected.is_floating_point():
        return torch.equal(actual, expected)
    if tolerance is None or tolerance.atol == tolerance.rtol == 0:
        is_same = (actual == expected) | (actual.isnan() & expected.isnan())
        return bool(is_same.all())
    return torch.allclose(
        actual.double(), expected.double(), atol=2 * tolerance.atol, rtol=2 * tolerance.rtol, equal_nan=True
    )


def arguments_of(operation: str, case: Case) -> dict[str, Any]:
    """Return the arguments of an operation's contract by name, fresh, on the CPU; the rest has its default, or None."""
    contract = getattr(_module(operation, "contract"), operation.rsplit("/", 1)[-1])
    given: Mapping[str, Any] = _module(operation, "cases").make_inputs(case)
    parameters = inspect.signature(contract).parameters
    blank = inspect.Parameter.empty
    return {name: given.get(name, None if own.default is blank else own.default) for name, own in parameters.items()}


def _module(operation: str, name: str) -> Any:
    return importlib.import_module(f"slipstream.kernels.{operation.replace('/', '.')}.{name}")


def _moved(value: Any, device_type: str) -> Any:
    """Return an argument on the device; a tensor keeps its strides, since a case may be about them."""
    if not isinstance(value, Tensor) or value.device.type == device_type:
        return value
    if value.is_contiguous():
        return value.to(device_type)
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device_type).copy_(value)


def _as_tuple(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)
