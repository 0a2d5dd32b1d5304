"""What a schema says about a place, however it says it, and that odd schemas are read to an end."""

from __future__ import annotations

import pytest

from slipstream.text.tools.shapes import TYPES, Shape

NUMBER = {"number", "integer"}


def types(schema):
    return set(Shape.of(schema).types)


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string"}, {"string"}),
        ({"type": "integer"}, {"integer"}),
        ({"type": "number"}, NUMBER),
        ({"type": ["string", "null"]}, {"string", "null"}),
        ({"type": ["number", "made up"]}, NUMBER),
        ({"type": "string", "nullable": True}, {"string", "null"}),
        ({"enum": ["a", 1, 2.5, None, True, [], {}]}, set(TYPES)),
        ({"enum": ["1", "2"]}, {"string"}),
        ({"const": False}, {"boolean"}),
        ({"type": ["string", "integer"], "enum": ["a"]}, {"string"}),
        ({"type": "number", "enum": [1]}, NUMBER),
        ({"properties": {}}, {"object"}),
        ({"items": {}}, {"array"}),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, {"string", "null"}),
        ({"oneOf": [{"type": "integer"}, {"const": "all"}]}, {"integer", "string"}),
        ({"anyOf": [{"type": "string"}, {}]}, set(TYPES)),
        ({"allOf": [{"type": ["string", "integer"]}, {"type": ["integer", "null"]}]}, {"integer"}),
        ({"allOf": [{"type": "number"}, {"type": "integer"}]}, {"integer"}),
        ({"type": ["string", "array"], "anyOf": [{"type": "array"}, {"type": "object"}]}, {"array"}),
        # Nothing known, or nothing possible: everything.
        (None, set(TYPES)),
        ({}, set(TYPES)),
        ({"description": "free"}, set(TYPES)),
        ({"type": "made up"}, set(TYPES)),
        ({"type": 3, "enum": "ab", "anyOf": {}}, set(TYPES)),
        ({"allOf": [{"type": "string"}, {"type": "null"}]}, set(TYPES)),
    ],
)
def test_types(schema, expected):
    assert types(schema) == expected


REFERENCES = {
    "$defs": {
        "Id": {"type": "integer"},
        "a/b~c %": {"type": "boolean"},
        "Again": {"$ref": "#/$defs/Id"},
        "Loop": {"$ref": "#/$defs/Loop"},
        "List": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/Node"}]},
        "Node": {"type": "object", "properties": {"value": {"type": "number"}, "next": {"$ref": "#/$defs/List"}}},
    },
    "definitions": {"Old": {"type": "null"}},
    "list": [{"type": "string"}],
}


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("#/$defs/Id", {"integer"}),
        ("#/$defs/Again", {"integer"}),
        ("#/$defs/a~1b~0c%20%25", {"boolean"}),
        ("#/definitions/Old", {"null"}),
        ("#/list/0", {"string"}),
        ("#/list/1", set(TYPES)),
        ("#/list/x", set(TYPES)),
        ("#/$defs/Missing", set(TYPES)),
        ("#/$defs/Loop", set(TYPES)),
        ("https://example.com/schema", set(TYPES)),
        (7, set(TYPES)),
    ],
)
def test_references(reference, expected):
    shape = Shape.of({**REFERENCES, "properties": {"x": {"$ref": reference}}})
    assert set(shape.member("x").types) == expected


def test_a_recursive_schema_is_followed_as_deep_as_the_values_go():
    shape = Shape.of({**REFERENCES, "$ref": "#/$defs/Node"})
    for _ in range(200):
        assert set(shape.member("value").types) == NUMBER
        assert set(shape.member("next").types) == {"null", "object"}
        shape = shape.member("next")


def test_members_are_found_through_combinations():
    schema = {
        "anyOf": [
            {"properties": {"a": {"type": "string"}, "b": {"type": "integer"}}},
            {"allOf": [{"$ref": "#/$defs/More"}]},
        ],
        "$defs": {"More": {"properties": {"a": {"type": "null"}}, "additionalProperties": {"type": "boolean"}}},
    }
    shape = Shape.of(schema)
    assert set(shape.member("a").types) == {"string", "null"}
    assert set(shape.member("b").types) == {"integer"}
    assert set(shape.member("c").types) == {"boolean"}
    assert [shape.declares(name) for name in "abc"] == [True, True, False]


def test_members_of_other_shapes():
    assert Shape.of({"properties": {"a": True}}).member("a").types == TYPES
    assert Shape.of({"properties": {"a": {"type": "null"}}}).member("b").types == TYPES
    assert Shape.of({"additionalProperties": False}).member("b").types == TYPES
    assert Shape.of({"properties": ["a"]}).member("a").types == TYPES


def test_items():
    assert set(Shape.of({"items": {"type": "string"}}).item(5).types) == {"string"}
    first = {"prefixItems": [{"type": "null"}], "items": {"type": "string"}}
    assert [set(Shape.of(first).item(index).types) for index in (0, 1)] == [{"null"}, {"string"}]
    old = {"items": [{"type": "null"}], "additionalItems": {"type": "integer"}}
    assert [set(Shape.of(old).item(index).types) for index in (0, 1)] == [{"null"}, {"integer"}]
    assert Shape.of({"items": [{"type": "null"}]}).item(1).types == TYPES
    assert Shape.of({"anyOf": [{"items": {"type": "null"}}, {"items": {"type": "string"}}]}).item(0).types == {
        "null",
        "string",
    }


def test_work_does_not_double_with_every_level():
    """60 levels, each naming the next twice: walking every path would never end."""
    levels = {f"d{place}": {"anyOf": [{"$ref": f"#/$defs/d{place + 1}"}] * 2} for place in range(60)}
    last = {"type": "object", "properties": {"x": {"type": "null"}}}
    shape = Shape.of({"$ref": "#/$defs/d0", "$defs": {**levels, "d60": last}})
    assert set(shape.member("x").types) == {"null"}


def test_a_long_chain_is_cut_and_known_no_further():
    levels = {f"d{place}": {"anyOf": [{"$ref": f"#/$defs/d{place + 1}"}]} for place in range(5_000)}
    shape = Shape.of({"$ref": "#/$defs/d0", "$defs": {**levels, "d5000": {"type": "null"}}})
    assert shape.types == TYPES
