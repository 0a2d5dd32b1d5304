"""Building blocks: an object's schema and the table that the parser reads it with allow the same."""

from __future__ import annotations

import pytest

from slipstream.server.openapi.values import TEXT, closed, list_of, nullable, one_of, shape_schema
from slipstream.server.protocol.fields import Ignored, Refused
from slipstream.server.protocol.shapes import Shape
from support.json_schema import is_valid, parses

SHAPE = Shape(
    {"name": (str,), "value": (str, list), "flag": (bool,)},
    ("name",),
    (Ignored("note", "nobody reads it"),),
    (Refused("loud", "there is no sound", (False, [])),),
)


@pytest.mark.parametrize(
    "value",
    [
        {"name": "x"},
        {},
        {"name": None},
        {"name": 5},
        {"name": "x", "value": []},
        {"name": "x", "value": "y", "flag": True},
        {"name": "x", "value": {}},
        {"name": "x", "value": None},
        {"name": "x", "flag": 1},
        {"name": "x", "note": {"any": 1}},
        {"name": "x", "loud": False},
        {"name": "x", "loud": None},
        {"name": "x", "loud": []},
        {"name": "x", "loud": 0},
        {"name": "x", "loud": True},
        {"name": "x", "more": 1},
        [],
        None,
    ],
)
def test_a_shape_and_its_schema_agree(value):
    assert is_valid(value, shape_schema(SHAPE)) == parses(lambda given: SHAPE.read(given, "here"), value)


def test_parts_and_needs_make_a_shape_stricter():
    schema = shape_schema(SHAPE, {"value": {"const": "y"}}, "value")
    assert is_valid({"name": "x", "value": "y"}, schema)
    assert not is_valid({"name": "x", "value": "z"}, schema)
    assert not is_valid({"name": "x"}, schema)


def test_null_is_added_once_and_notes_stay_outside():
    assert nullable({"type": "string", "description": "d"}) == {
        "anyOf": [{"type": "string"}, {"type": "null"}],
        "description": "d",
    }
    for schema in ({"description": "any"}, {"enum": [None, 1]}, {"type": "null"}, nullable(TEXT)):
        assert nullable(schema) == schema


def test_lists_words_and_closed_objects():
    schema = closed({"words": list_of(one_of("a", "b"), min_items=1, max_items=2), "more": TEXT}, "words")
    for value in ({"words": ["a"]}, {"words": ["a", "b"], "more": None}):
        assert is_valid(value, schema)
    for value in ({"words": []}, {"words": ["c"]}, {"words": ["a"] * 3}, {"words": None}, {"words": ["a"], "x": 1}, {}):
        assert not is_valid(value, schema)
