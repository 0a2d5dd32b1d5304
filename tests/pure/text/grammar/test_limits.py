"""Bounds hold at their edge: what is allowed passes, one more does not."""

from __future__ import annotations

import json

import pytest

from slipstream.base.errors import RequestError
from slipstream.text.grammar.limits import GrammarLimits, check_schema, check_size, read_schemas
from slipstream.wire.grammar import GrammarSpec

LIMITS = GrammarLimits(max_text_bytes=100, max_regex_bytes=20, max_nesting=6, max_intersections=3)
RULE = {"type": "string", "pattern": "a"}


def nested(levels):
    schema = {}
    for _ in range(levels - 1):
        schema = {"items": schema}
    return schema


@pytest.mark.parametrize(
    ("fits", "too_large"),
    [
        (GrammarSpec.regex("a" * 20), GrammarSpec.regex("a" * 21)),
        (GrammarSpec.regex("é" * 10), GrammarSpec.regex("é" * 11)),
        (GrammarSpec.grammar("a" * 100), GrammarSpec.grammar("a" * 101)),
        (GrammarSpec.choice(["a" * 96]), GrammarSpec.choice(["a" * 97])),
    ],
)
def test_bytes_are_bounded(fits, too_large):
    check_size(fits, LIMITS)
    with pytest.raises(RequestError, match="at most (20|100) are allowed: send a smaller one") as caught:
        check_size(too_large, LIMITS)
    assert caught.value.code == "grammar_too_large"


def test_nesting_is_bounded():
    check_schema("here", nested(6), LIMITS)
    with pytest.raises(RequestError, match="here: nested 7 levels deep, at most 6"):
        check_schema("here", nested(7), LIMITS)
    with pytest.raises(RequestError, match="nested 7 levels deep"):
        check_schema("here", {"enum": [[[[[[]]]]]]}, LIMITS)


def meets(schema, count):
    """Whether exactly `count` rules may meet on one value."""
    check_schema("here", schema, GrammarLimits(max_intersections=count))
    with pytest.raises(RequestError, match=f"up to {count} of pattern"):
        check_schema("here", schema, GrammarLimits(max_intersections=count - 1))
    return True


def test_rules_that_meet_are_counted():
    assert meets({"allOf": [RULE] * 5}, 5)
    assert meets({"pattern": "a", "format": "date"}, 2)
    assert meets({"pattern": "a", "allOf": [RULE, {"allOf": [RULE, RULE]}]}, 4)
    assert meets({"$ref": "#/$defs/a", "pattern": "b", "$defs": {"a": {"allOf": [RULE, RULE]}}}, 3)
    assert meets({"properties": {"a": {"multipleOf": 3, "allOf": [{"multipleOf": 5}]}}}, 2)
    assert meets({"allOf": [{"properties": {"a": RULE}}, {"properties": {"a": RULE}}]}, 2)
    assert meets({"allOf": [{"anyOf": [RULE, {"allOf": [RULE, RULE]}]}, {"oneOf": [RULE, RULE]}]}, 3)
    assert meets({"allOf": [{"$ref": "#/x~1y/0"}, RULE], "x/y": [RULE]}, 3)


def test_rules_side_by_side_do_not_meet():
    many = {"type": "object", "properties": {f"p{place}": RULE for place in range(50)}}
    check_schema("here", many, GrammarLimits(max_intersections=1))
    check_schema("here", {"anyOf": [RULE] * 50}, GrammarLimits(max_intersections=1))
    check_schema("here", {"properties": {"pattern": {}, "format": {}, "allOf": {}}}, GrammarLimits(max_intersections=1))
    check_schema("here", {"enum": [{"pattern": "a", "format": "b"}]}, GrammarLimits(max_intersections=1))
    check_schema("here", {"$defs": {"a": {"allOf": [RULE]}}, "pattern": "b"}, GrammarLimits(max_intersections=1))


def test_references_to_themselves_are_followed_once():
    tree = {"$ref": "#/$defs/t", "$defs": {"t": {"pattern": "a", "items": {"$ref": "#/$defs/t"}}}}
    check_schema("here", tree, GrammarLimits(max_intersections=1))
    check_schema("here", {"$ref": "#"}, GrammarLimits(max_intersections=1))


@pytest.mark.parametrize("reference", ["#/$defs/none", "#/$defs/a/b/c", "http://elsewhere/x", "", "#/allOf/9"])
def test_references_to_nowhere_are_the_librarys_to_refuse(reference):
    check_schema("here", {"allOf": [{"$ref": reference}], "$defs": {"a": {}}}, LIMITS)


def test_a_long_chain_of_references_is_refused():
    chain = {str(place): {"$ref": f"#/$defs/{place + 1}"} for place in range(3000)}
    with pytest.raises(RequestError, match="the chain of \\$ref is too long"):
        check_schema("here", {"$ref": "#/$defs/0", "$defs": {**chain, "3000": {}}}, LIMITS)


def test_doubling_references_take_linear_time():
    doubled = {str(place): {"allOf": [{"$ref": f"#/$defs/{place + 1}"}] * 2} for place in range(60)}
    schema = {"$ref": "#/$defs/0", "$defs": {**doubled, "60": RULE}}
    with pytest.raises(RequestError, match=f"up to {2**60} of pattern"):
        check_schema("here", schema, GrammarLimits())


def test_schemas_are_found_in_their_specifications():
    assert list(read_schemas(GrammarSpec.json_schema({"a": 1}))) == [{"a": 1}]
    structure = {"begin": "<", "schema": {"a": 1}, "end": ""}
    value = {"structures": [structure, {**structure, "schema": True}], "triggers": ["<"]}
    assert list(read_schemas(GrammarSpec.structural(json.dumps(value)))) == [{"a": 1}, True]
