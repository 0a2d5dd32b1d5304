"""Every spelling of a constraint gives the same constraint; two of them, or a malformed one, name their fields."""

from __future__ import annotations

import json

import pytest

from slipstream.base.errors import RequestError, UnsupportedFeature
from slipstream.server.protocol.endpoints import CHAT, COMPLETIONS
from slipstream.server.protocol.parse import parse_fields
from slipstream.server.protocol.structured import blaming, field_at_fault, grammar_field, grammar_of
from slipstream.text.grammar.limits import GrammarLimits
from slipstream.text.tools.schema import ToolChoice
from slipstream.wire.grammar import GrammarSpec
from support.http_world import USER

SCHEMA = {"type": "object", "properties": {"b": {"type": "integer"}, "a": {"type": "string"}}, "required": ["b"]}
STRUCTURAL = {"structures": [{"begin": "<f>", "schema": SCHEMA, "end": "</f>"}], "triggers": ["<f"]}
SPELLINGS = [
    ({"response_format": {"type": "json_object"}}, GrammarSpec.json_object()),
    ({"response_format": {"type": "json_object", "json_schema": None}}, GrammarSpec.json_object()),
    ({"structured_outputs": {"json_object": True}}, GrammarSpec.json_object()),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}},
        GrammarSpec.json_schema(SCHEMA),
    ),
    (
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "x", "schema": SCHEMA, "description": "what for", "strict": True},
            }
        },
        GrammarSpec.json_schema(SCHEMA),
    ),
    ({"structured_outputs": {"json": SCHEMA}}, GrammarSpec.json_schema(SCHEMA)),
    ({"structured_outputs": {"json": json.dumps(SCHEMA)}}, GrammarSpec.json_schema(SCHEMA)),
    ({"structured_outputs": {"json": True}}, GrammarSpec.json_schema(True)),
    ({"structured_outputs": {"json": False}}, GrammarSpec.json_schema(False)),
    ({"guided_json": SCHEMA}, GrammarSpec.json_schema(SCHEMA)),
    ({"guided_json": json.dumps(SCHEMA)}, GrammarSpec.json_schema(SCHEMA)),
    ({"structured_outputs": {"regex": "a+"}}, GrammarSpec.regex("a+")),
    ({"structured_outputs": {"regex": "a+", "json": None, "json_object": False}}, GrammarSpec.regex("a+")),
    ({"structured_outputs": {"regex": "a+", "disable_fallback": False}}, GrammarSpec.regex("a+")),
    ({"guided_regex": "a+"}, GrammarSpec.regex("a+")),
    ({"structured_outputs": {"choice": ["a", "b"]}}, GrammarSpec.choice(["a", "b"])),
    ({"guided_choice": ["a", "b"]}, GrammarSpec.choice(["a", "b"])),
    ({"structured_outputs": {"grammar": 'start: "a"'}}, GrammarSpec.grammar('start: "a"')),
    ({"guided_grammar": 'start: "a"'}, GrammarSpec.grammar('start: "a"')),
    ({"response_format": {"type": "structural_tag", **STRUCTURAL}}, GrammarSpec.structural(STRUCTURAL)),
    ({"structured_outputs": {"structural_tag": STRUCTURAL}}, GrammarSpec.structural(STRUCTURAL)),
    ({"structured_outputs": {"structural_tag": json.dumps(STRUCTURAL)}}, GrammarSpec.structural(STRUCTURAL)),
    ({"response_format": {"type": "text"}, "guided_regex": "a+"}, GrammarSpec.regex("a+")),
]
NOTHING = [
    {},
    {"response_format": {"type": "text"}},
    {"structured_outputs": {}},
    {"structured_outputs": {"json": None, "json_object": False}},
]


def read(endpoint=COMPLETIONS, **fields):
    base = {"messages": USER} if endpoint is CHAT else {"prompt": "a"}
    return parse_fields(endpoint, endpoint.accepts, base | fields)


@pytest.mark.parametrize("endpoint", [CHAT, COMPLETIONS], ids=lambda endpoint: endpoint.path)
@pytest.mark.parametrize(("fields", "spec"), SPELLINGS)
def test_every_spelling_gives_its_constraint(endpoint, fields, spec):
    request = read(endpoint, **fields)
    assert grammar_of(request) == spec
    assert grammar_field(request) == next(name for name in fields if fields[name] != {"type": "text"})


@pytest.mark.parametrize("fields", NOTHING)
def test_what_asks_for_nothing_leaves_the_text_free(fields):
    assert grammar_of(read(**fields)) is None
    assert grammar_field(read(**fields)) is None


def test_properties_keep_the_order_of_the_schema():
    assert list(json.loads(grammar_of(read(guided_json=SCHEMA)).text)["properties"]) == ["b", "a"]


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"response_format": {"type": "json_object"}, "guided_regex": "a"}, ["response_format", "guided_regex"]),
        ({"guided_json": SCHEMA, "guided_choice": ["a"]}, ["guided_json", "guided_choice"]),
        (
            {"structured_outputs": {"regex": "a", "choice": ["a"]}},
            ["structured_outputs.regex", "structured_outputs.choice"],
        ),
        ({"structured_outputs": {"regex": "a"}, "guided_regex": "a"}, ["structured_outputs.regex", "guided_regex"]),
    ],
)
def test_two_constraints_are_refused_by_both_names(fields, names):
    with pytest.raises(RequestError) as caught:
        grammar_of(read(**fields))
    assert all(name in str(caught.value) for name in names)
    assert caught.value.param == names[1].partition(".")[0]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"response_format": {}}, "type is"),
        ({"response_format": {"type": "xml"}}, "'xml'"),
        ({"response_format": {"type": ["text"]}}, "type is"),
        ({"response_format": {"type": "text", "schema": {}}}, "'schema'"),
        ({"response_format": {"type": "json_object", "json_schema": {}}}, "'json_schema'"),
        ({"response_format": {"type": "json_schema"}}, "name and schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}}, "name is missing"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}, "schema is missing"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": "{}"}}},
            "schema is missing",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}, "strict": 1}}},
            "strict",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}, "extra": 1}}},
            "'extra'",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}, "description": 1}}},
            "description",
        ),
        ({"response_format": {"type": "structural_tag", "format": {}}}, "format"),
        ({"response_format": {"type": "structural_tag"}}, "triggers is missing"),
        ({"structured_outputs": {"yaml": 1}}, "'yaml'"),
        ({"structured_outputs": {"json_object": 1}}, "give true"),
        ({"structured_outputs": {"regex": 5}}, "regex"),
        ({"structured_outputs": {"choice": "a"}}, "choice"),
        ({"structured_outputs": {"choice": ["a"] * 5000}}, "5000"),
        ({"structured_outputs": {"json": "{"}}, "not JSON"),
        ({"structured_outputs": {"json": [1]}}, "schema"),
        ({"structured_outputs": {"json": {"x-guidance": {}}}}, "x-guidance"),
        ({"guided_choice": []}, "choice"),
    ],
)
def test_a_malformed_constraint_names_its_field(fields, says):
    with pytest.raises(RequestError, match=says) as caught:
        grammar_of(read(**fields))
    (name,) = fields
    assert (caught.value.param, caught.value.code) == (name, "invalid_grammar")
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "name", ["disable_fallback", "disable_any_whitespace", "disable_additional_properties", "whitespace_pattern"]
)
def test_options_of_other_implementations_are_refused_by_name(name):
    with pytest.raises(UnsupportedFeature, match=name) as caught:
        grammar_of(read(structured_outputs={"regex": "a", name: True}))
    assert caught.value.param == "structured_outputs"


@pytest.mark.parametrize("name", ["guided_decoding_backend", "guided_whitespace_pattern"])
def test_older_options_are_refused_by_name(name):
    with pytest.raises(UnsupportedFeature) as caught:
        read(guided_regex="a", **{name: "x"})
    assert caught.value.param == name


class Unread(list):
    """A list that fails the test when its items are read."""

    def __iter__(self):
        raise AssertionError("the items were read, although there are too many")


LIMIT = GrammarLimits().max_text_bytes


@pytest.mark.parametrize(
    "value",
    [
        {"enum": Unread([1] * (LIMIT + 1))},
        {"enum": [[1] * 1000] * 1000},
        {"description": "x" * (LIMIT + 1)},
        {str(n): 1 for n in range(LIMIT + 1)},
        {"x" * (LIMIT + 1): 1},
    ],
)
def test_a_huge_schema_is_refused_before_it_is_written(value):
    with pytest.raises(RequestError, match=str(LIMIT)) as caught:
        grammar_of(read(structured_outputs={"json": value}))
    assert (caught.value.param, caught.value.code) == ("structured_outputs", "grammar_too_large")


def test_a_schema_within_the_limit_passes():
    schema = {"description": "x" * (LIMIT - 1000), "enum": [1] * 100}
    assert grammar_of(read(guided_json=schema)) == GrammarSpec.json_schema(schema)


@pytest.mark.parametrize(
    ("code", "field", "param"),
    [
        ("invalid_grammar", "guided_json", "guided_json"),
        ("grammar_too_large", "guided_json", "guided_json"),
        ("invalid_grammar", None, "own"),
        ("other", "guided_json", "own"),
    ],
)
def test_errors_about_a_constraint_name_the_field_that_held_it(code, field, param):
    with pytest.raises(RequestError) as caught, blaming(field):
        raise RequestError("no", param="own", code=code)
    assert caught.value.param == param


def test_a_schema_beside_its_member_is_shown_where_to_go():
    with pytest.raises(RequestError, match=r"'schema' belongs into its member json_schema: give ") as caught:
        grammar_of(read(CHAT, response_format={"type": "json_schema", "schema": {"type": "null"}}))
    assert caught.value.param == "response_format"


def test_errors_about_a_constraint_are_about_whatever_made_it():
    for mode in ("required", "named", "auto"):
        assert field_at_fault(ToolChoice(mode, "f" if mode == "named" else None), None) == "tools"
    assert field_at_fault(ToolChoice("none"), "text") == "text"
    assert field_at_fault(ToolChoice("auto"), "text") == "text", "no calls are bound beside a constraint"
