"""What a schema says about its places, strictly: alternatives, members and items, and what is refused."""

from __future__ import annotations

import pytest

from slipstream.base.errors import UnsupportedFeature
from slipstream.text.tools.places import Place

STRING, INTEGER, NULL = {"type": "string"}, {"type": "integer"}, {"type": "null"}
SCHEMA = {"$defs": {"a": INTEGER, "b": {"$ref": "#/$defs/a"}, "loop": {"$ref": "#/$defs/loop"}}}


def place(raw) -> Place:
    return Place(raw, SCHEMA, "f")


@pytest.mark.parametrize(
    ("raw", "nodes"),
    [
        (STRING, [STRING]),
        (True, [{}]),
        (False, []),
        ({"$ref": "#/$defs/b", "description": "x"}, [INTEGER]),
        ({"allOf": [STRING]}, [STRING]),
        ({"anyOf": [STRING, NULL], "default": None}, [STRING, NULL]),
        ({"anyOf": [STRING, {"anyOf": [INTEGER, {"$ref": "#/$defs/a"}]}]}, [STRING, INTEGER, INTEGER]),
        ({"oneOf": [STRING, INTEGER]}, [STRING, INTEGER]),
        ({"oneOf": [INTEGER, {"type": "number"}]}, None),
        ({"allOf": [STRING, {"minLength": 1}]}, None),
        ({"anyOf": [STRING], "minLength": 1}, None),
        ({"$ref": "#/$defs/a", "minimum": 1}, None),
    ],
)
def test_alternatives(raw, nodes):
    """None: what cannot be taken apart stays as it is."""
    assert place(raw).nodes == ([raw] if nodes is None else nodes)


def test_the_only_alternative_besides_null():
    assert place({"anyOf": [INTEGER, NULL]}).only_node() == INTEGER
    assert place({"anyOf": [INTEGER, STRING]}).only_node() is None
    assert place(False).only_node() is None


def test_members_and_items():
    parent = place({"properties": {"x": {"$ref": "#/$defs/a"}, "never": False}, "additionalProperties": STRING})
    assert parent.member("x").types == {"integer"}
    assert parent.member("never").nodes == []
    assert parent.member("other").nodes == [STRING]
    assert place({"properties": {}}).member("other").is_free
    assert place({"items": INTEGER}).item().nodes == [INTEGER]
    assert place({"items": INTEGER}).item().path == "f[]"
    assert parent.member("x").path == "f.x"
    assert parent.member("x").key == parent.member("x").key != parent.member("other").key


@pytest.mark.parametrize(
    ("raw", "is_plain"),
    [
        ({"properties": {"a": STRING}, "required": ["a"]}, True),
        ({"type": "object", "title": "x", "x-order": 1, "additionalProperties": False}, True),
        ({"properties": {"a": STRING}, "minProperties": 1}, False),
        ({"properties": {"a<b": STRING}}, False),
        ({"properties": {}, "required": ["a>b"]}, False),
        ({"properties": {}, "required": "a"}, False),
    ],
)
def test_plain_objects(raw, is_plain):
    assert place(raw).is_plain_object(raw) == is_plain


@pytest.mark.parametrize(
    ("raw", "is_plain"),
    [
        ({"items": STRING, "minItems": 1, "maxItems": 2}, True),
        ({"type": "array"}, False),
        ({"items": STRING, "uniqueItems": True}, False),
        ({"items": STRING, "minItems": "1"}, False),
        ({"items": [STRING]}, False),
    ],
)
def test_plain_lists(raw, is_plain):
    assert place(raw).is_plain_list(raw) == is_plain


def test_a_schema_on_its_own_takes_the_definitions_along():
    assert place({"type": "integer", "description": "x"}).as_json() == INTEGER
    listed = {"type": "array", "prefixItems": [{"$ref": "#/$defs/a"}]}
    assert place(listed).as_json() == listed | {"$defs": SCHEMA["$defs"]}
    both = {"type": ["string", "integer"]}
    assert place(both).as_json(both, frozenset({"integer"})) == {"type": ["integer"]}


@pytest.mark.parametrize(
    ("use", "says"),
    [
        (lambda: place(5), "neither an object nor"),
        (lambda: place({"$ref": "#/$defs/missing"}), "which it does not hold"),
        (lambda: place({"$ref": "#/$defs/loop"}), "refers to itself"),
        (lambda: place({"items": {"$ref": "#"}}).as_json(), "references to"),
        (lambda: place(STRING).string_rules({"not": {}}), "the rule 'not'"),
    ],
)
def test_what_cannot_be_read_is_refused(use, says):
    with pytest.raises(UnsupportedFeature, match=says) as caught:
        use()
    assert (caught.value.param, caught.value.code) == ("tools", "unsupported_schema")
