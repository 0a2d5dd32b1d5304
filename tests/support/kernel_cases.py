"""Run an operation on its named cases: against the oracle, with axes checked, and against wrong versions of itself."""

from __future__ import annotations

import importlib
import sys
import types
import typing
from pathlib import Path

import jaxtyping
import torch
from beartype import beartype

import slipstream.kernels
from slipstream.kernels.case import case_named
from support import oracles

ROOM = Path(slipstream.kernels.__file__).parent
FAMILIES = ("norm", "cache", "moe", "attention", "linear")
OPERATIONS = sorted(
    f.parent.relative_to(ROOM).as_posix() for family in FAMILIES for f in (ROOM / family).glob("*/contract.py")
)
AXIS_TYPES = {
    name: getattr(jaxtyping, name)
    for name in ("BFloat16", "Bool", "Float", "Float32", "Int", "Int16", "Int32", "Int64")
}


def module_of(operation, name):
    return importlib.import_module(f"slipstream.kernels.{operation.replace('/', '.')}.{name}")


def short_name(operation):
    return operation.rsplit("/", 1)[-1]


def with_checked_axes(function):
    """Return the function with its axis annotations enforced; a library that only tests need resolves them."""
    names = {**vars(sys.modules[function.__module__]), **AXIS_TYPES}
    checked = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    checked.__annotations__ = typing.get_type_hints(function, globalns=names)
    checked.__kwdefaults__ = function.__kwdefaults__
    return jaxtyping.jaxtyped(typechecker=beartype)(checked)


def contract_of(operation):
    return getattr(module_of(operation, "contract"), short_name(operation))


def reference_of(operation):
    return getattr(module_of(operation, "reference"), short_name(operation))


def cases_of(operation):
    return module_of(operation, "cases").CASES


def inputs_of(operation, case):
    if isinstance(case, str):
        case = case_named(cases_of(operation), case)
    return module_of(operation, "cases").make_inputs(case)


def expected_of(operation, inputs):
    return as_tuple(getattr(oracles, short_name(operation))(**inputs))


def as_tuple(result):
    return result if isinstance(result, tuple) else (result,)


def accepts(case, results, expected):
    results = as_tuple(results)
    assert len(results) == len(expected)
    return all(case.tolerance.accepts(result, want) for result, want in zip(results, expected, strict=True))


def check_case(operation, case):
    """The contract's and the reference's results, axes enforced, are within the case's tolerance of the oracle."""
    inputs = inputs_of(operation, case)
    expected = expected_of(operation, inputs)
    with torch.inference_mode():
        by_contract = with_checked_axes(contract_of(operation))(**inputs)
        by_reference = with_checked_axes(reference_of(operation))(**inputs)
    assert accepts(case, by_contract, expected), f"{operation} {case.name}: {case.guards}"
    assert accepts(case, by_reference, expected), f"{operation} {case.name}: {case.guards}"


def check_mutant(operation, case_name, mutant, sound):
    """A wrong version of the operation is outside the tolerance of the case that exists for its fault.

    Args:
        operation: family and name.
        case_name: the case that must reject it.
        mutant: the wrong version.
        sound: the same code without the fault; the case must accept it, or the rejection proves nothing.
    """
    case = case_named(cases_of(operation), case_name)
    expected = expected_of(operation, inputs_of(operation, case))
    assert accepts(case, sound(**inputs_of(operation, case)), expected)
    assert not accepts(case, mutant(**inputs_of(operation, case)), expected), f"{operation} {case_name} is blind to it"
