"""What the schema of a struct says is what its encoder writes."""

from __future__ import annotations

import json
from typing import Any, Literal

import msgspec
import pytest
from msgspec import UNSET, UnsetType

from slipstream.server.openapi.structs import schema_of


class Inner(msgspec.Struct, frozen=True):
    """Inside."""

    count: int
    kind: Literal["a", "b"] = "a"


class Outer(msgspec.Struct, frozen=True, tag_field="type", tag="outer", rename={"class_": "class"}):
    """Around."""

    class_: str
    items: list[Inner] | None = None
    late: str | UnsetType | None = UNSET
    extra: dict[str, Any] = {}
    pair: tuple[float, ...] = ()


class Sparse(msgspec.Struct, omit_defaults=True):
    """Leaves out what is usual."""

    name: str
    usual: int = 0
    again: list[Sparse] = []


def test_required_are_exactly_the_fields_that_are_always_written():
    components: dict[str, Any] = {}
    assert schema_of(Outer, components) == {"$ref": "#/components/schemas/Outer"}
    written = json.loads(msgspec.json.encode(Outer("x")))
    assert set(components["Outer"]["required"]) == set(written) == {"type", "class", "items", "extra", "pair"}
    assert set(components["Outer"]["properties"]) - set(written) == {"late"}
    written = json.loads(msgspec.json.encode(Outer("x", late="y")))
    assert set(components["Outer"]["properties"]) == set(written)


def test_types_become_schemas():
    components: dict[str, Any] = {}
    schema_of(Outer, components)
    properties = components["Outer"]["properties"]
    assert properties["type"] == {"const": "outer"}
    inner = {"type": "array", "items": {"$ref": "#/components/schemas/Inner"}}
    assert properties["items"] == {"anyOf": [inner, {"type": "null"}]}
    assert properties["late"] == {"anyOf": [{"type": "string"}, {"type": "null"}]}
    assert properties["extra"] == {"type": "object", "additionalProperties": {}}
    assert properties["pair"] == {"type": "array", "items": {"type": "number"}}
    assert components["Inner"]["properties"] == {"count": {"type": "integer"}, "kind": {"enum": ["a", "b"]}}


def test_left_out_defaults_are_not_required_and_a_struct_may_hold_itself():
    components: dict[str, Any] = {}
    schema_of(Sparse, components)
    assert components["Sparse"]["required"] == ["name"]
    assert components["Sparse"]["properties"]["again"]["items"] == {"$ref": "#/components/schemas/Sparse"}


def test_a_union_of_structs_without_tags_is_one_of_them():
    components: dict[str, Any] = {}
    branches = schema_of(Inner | Sparse | None, components)["anyOf"]
    assert branches == [
        {"$ref": "#/components/schemas/Inner"},
        {"$ref": "#/components/schemas/Sparse"},
        {"type": "null"},
    ]
    assert set(components) == {"Inner", "Sparse"}


def test_what_has_no_schema_is_refused_by_name():
    with pytest.raises(TypeError, match="complex"):
        schema_of(complex, {})
    same_name = msgspec.defstruct("Inner", [("count", int)], module="elsewhere")
    components: dict[str, Any] = {}
    schema_of(Inner, components)
    with pytest.raises(TypeError, match="same name"):
        schema_of(same_name, components)
