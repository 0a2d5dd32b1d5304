"""Values that cross rooms and processes hold numbers, strings and tuples only."""

from __future__ import annotations

import importlib
import types
import typing

import msgspec
import pytest

from support.project import PACKAGE

PLAIN = {int, float, str, bool, bytes, type(None)}


def wire_structs() -> list[type[msgspec.Struct]]:
    found = []
    for file in sorted((PACKAGE / "wire").glob("[a-z]*.py")):
        module = importlib.import_module(
            f"slipstream.wire.{file.stem}" if file.stem != "__init__" else "slipstream.wire"
        )
        found += [
            value
            for value in vars(module).values()
            if isinstance(value, type) and issubclass(value, msgspec.Struct) and value.__module__ == module.__name__
        ]
    return found


def is_plain(hint: object) -> bool:
    if hint in PLAIN:
        return True
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return hint.__module__.startswith("slipstream.")
    if isinstance(hint, typing.NewType):
        return is_plain(hint.__supertype__)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return all(type(value) in PLAIN for value in arguments)
    if origin in (typing.Union, types.UnionType):
        return all(is_plain(argument) for argument in arguments)
    if origin is tuple:
        return bool(arguments) and all(argument is Ellipsis or is_plain(argument) for argument in arguments)
    return False


@pytest.mark.parametrize("struct", wire_structs(), ids=lambda struct: struct.__name__)
def test_fields_are_plain_and_frozen(struct):
    assert struct.__struct_config__.frozen
    hints = typing.get_type_hints(struct)
    assert {name: hints[name] for name in struct.__struct_fields__ if not is_plain(hints[name])} == {}


def test_there_are_wire_values():
    assert {"Request", "StepPlan", "StepResult", "SamplingParams"} <= {struct.__name__ for struct in wire_structs()}


@pytest.mark.parametrize(
    "hint",
    [object, typing.Any, typing.Callable[[], int], list[int], dict[str, int], tuple, tuple[object, ...]],
    ids=str,
)
def test_open_types_are_refused(hint):
    assert not is_plain(hint)
