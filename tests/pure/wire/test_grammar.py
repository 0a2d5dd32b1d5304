"""Specifications are values: canonical, comparable, and refused where they make no sense."""

from __future__ import annotations

import json

import msgspec
import pytest

from slipstream.base.errors import RequestError, UnsupportedFeature
from slipstream.wire.grammar import GrammarSpec

STRUCTURE = {"begin": "<f=a>", "schema": {"type": "integer"}, "end": "</f>"}


def test_equal_constraints_are_equal_values():
    schema = {"type": "object", "properties": {"b": {}, "a": {}}}
    one, two = GrammarSpec.json_schema(schema), GrammarSpec.json_schema(json.dumps(schema, indent=3))
    assert one == two
    assert hash(one) == hash(two)
    assert one != GrammarSpec.json_schema({"type": "object", "properties": {"a": {}, "b": {}}})
    assert GrammarSpec.regex("a") != GrammarSpec.grammar("a")
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(one), type=GrammarSpec) == one


def test_a_schema_keeps_the_order_of_its_properties():
    assert list(json.loads(GrammarSpec.json_schema('{"b": 1, "a": 2}').text)) == ["b", "a"]


def test_structures_may_come_as_text_and_with_their_type():
    plain = GrammarSpec.structural({"structures": [STRUCTURE], "triggers": ["<f="]})
    named = GrammarSpec.structural({"type": "structural_tag", "structures": [STRUCTURE], "triggers": ["<f="]})
    assert plain == named == GrammarSpec.structural(json.dumps({"triggers": ["<f="], "structures": [STRUCTURE]}))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: GrammarSpec.json_schema("{"), "not JSON"),
        (lambda: GrammarSpec.json_schema("[" * 100_000), "not JSON"),
        (lambda: GrammarSpec.json_schema('{"maximum": NaN}'), "NaN is not a JSON number"),
        (lambda: GrammarSpec.json_schema({"maximum": float("inf")}), "cannot be written as JSON"),
        (lambda: GrammarSpec.json_schema({"const": object()}), "cannot be written as JSON"),
        (lambda: GrammarSpec.json_schema("[1]"), "give an object, true or false"),
        (lambda: GrammarSpec.json_schema({"x-guidance": {"lenient": True}, "not": {}}), "'x-guidance' is not allowed"),
        (lambda: GrammarSpec.json_schema({"const": "\ud800"}), "lone surrogate"),
        (lambda: GrammarSpec.regex(7), "give a string"),
        (lambda: GrammarSpec.grammar("start: \udfff"), "lone surrogate"),
        (lambda: GrammarSpec.choice([]), "at least one string"),
        (lambda: GrammarSpec.choice("abc"), "at least one string"),
        (lambda: GrammarSpec.choice(["a", 1]), "give a string"),
        (lambda: GrammarSpec.structural("[]"), "structures and triggers"),
        (lambda: GrammarSpec.structural({"structures": [STRUCTURE]}), "triggers is missing"),
        (lambda: GrammarSpec.structural({"structures": [], "triggers": ["<f="]}), "structures is missing"),
        (lambda: GrammarSpec.structural({"structures": [STRUCTURE], "triggers": [""]}), "not empty"),
        (lambda: GrammarSpec.structural({"structures": [{"begin": "<f"}], "triggers": ["<f"]}), "not a structure"),
        (lambda: GrammarSpec.structural({"structures": [STRUCTURE], "triggers": ["<"], "at": 1}), "not allowed"),
        (
            lambda: GrammarSpec.structural({"structures": [{**STRUCTURE, "schema": 3}], "triggers": ["<f="]}),
            "give an object, true or false",
        ),
        (lambda: GrammarSpec.structural({"type": "x", "structures": [STRUCTURE], "triggers": ["<"]}), "not allowed"),
    ],
)
def test_what_makes_no_sense_is_refused(build, message):
    with pytest.raises(RequestError, match=message) as caught:
        build()
    assert caught.value.code == "invalid_grammar"


def test_the_newer_structural_form_is_not_served():
    with pytest.raises(UnsupportedFeature, match="`format` is not served"):
        GrammarSpec.structural({"type": "structural_tag", "format": {"type": "any_text"}})
