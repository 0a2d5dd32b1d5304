"""A forced call is a call: what the grammar lets through is read back as arguments that satisfy the schema."""

from __future__ import annotations

import json
import random

import pytest

from slipstream.base.errors import RequestError, UnsupportedFeature
from slipstream.text.grammar.compiler import GrammarCompiler
from slipstream.text.grammar.matcher import GrammarFault
from slipstream.text.tokenizer import Tokenizer
from slipstream.text.tools.constrain import call_grammar, text_grammar
from slipstream.text.tools.parser import split_tool_calls
from slipstream.text.tools.render import render_tool_calls
from slipstream.text.tools.schema import Tool, ToolChoice, ToolSet, parse_tools
from slipstream.text.tools.syntax import NAMESPACE
from support.call_schemas import draw_call, is_valid, random_parameters
from support.grammar_world import grammar_tokenizer
from support.tiny_text import tiny_folder

TOKENIZER = Tokenizer.load(tiny_folder())
END = TOKENIZER.eos_token_ids[0]
REQUIRED = ToolChoice("required")

WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer", "minimum": 1, "maximum": 14},
        "unit": {"enum": ["C", "F"]},
        "where": {
            "type": "object",
            "properties": {"lat": {"type": "number"}, "tags": {"type": "array", "items": {"type": "string"}}},
            "required": ["lat"],
        },
    },
    "required": ["city", "unit"],
}


@pytest.fixture(scope="module")
def compiler():
    with GrammarCompiler(TOKENIZER) as compiler:
        yield compiler


def tool_set(**parameters) -> ToolSet:
    return ToolSet(tuple(Tool(name, None, schema) for name, schema in parameters.items()))


def accepts(compiler, spec, text: str) -> bool:
    matcher = compiler.compile(spec).start()
    try:
        matcher.accept([*TOKENIZER.encode(text), END])
    except GrammarFault:
        return False
    return True


def value_is_allowed(compiler, schema, text: str) -> bool:
    """Return whether a text may stand where the schema does."""
    parameters = {"type": "object", "properties": {"x": schema}, "required": ["x"]}
    spec = call_grammar(tool_set(f=parameters), REQUIRED, TOKENIZER)
    whole = render_tool_calls([("f", {"x": "\x00"})]).replace("\x00", text)
    return accepts(compiler, spec, whole)


@pytest.mark.parametrize(
    "arguments",
    [
        {"city": "Rome", "unit": "C"},
        {"city": "", "unit": "F"},
        {"city": "São Paulo\n]<] {1}", "days": 14, "unit": "F"},
        {"city": "12", "days": 1, "unit": "C", "where": {"lat": -1.5e3, "tags": ["a", "", "null"]}},
        {"city": "true", "unit": "C", "where": {"lat": 0, "tags": []}},
    ],
)
def test_what_the_renderer_writes_is_allowed(compiler, arguments):
    spec = call_grammar(tool_set(weather=WEATHER), REQUIRED, TOKENIZER)
    assert accepts(compiler, spec, render_tool_calls([("weather", arguments)]))


@pytest.mark.parametrize(
    "arguments",
    [
        {"city": "Rome"},
        {"unit": "C"},
        {"city": "Rome", "unit": "K"},
        {"unit": "C", "city": "Rome"},
        {"city": "Rome", "days": 0, "unit": "C"},
        {"city": "Rome", "days": 1.5, "unit": "C"},
        {"city": "Rome", "unit": "C", "where": {}},
        {"city": "Rome", "unit": "C", "where": {"lat": "north"}},
        {"city": "Rome", "unit": "C", "more": 1},
        {"city": "a]<]minimax[>[b", "unit": "C"},
    ],
)
def test_what_the_schema_forbids_is_not(compiler, arguments):
    spec = call_grammar(tool_set(weather=WEATHER), REQUIRED, TOKENIZER)
    assert not accepts(compiler, spec, render_tool_calls([("weather", arguments)]))


@pytest.mark.parametrize(
    ("text", "is_allowed"),
    [
        ("", True),
        ("It is ]<] sunny.\n", True),
        ("§f§", True),
        ("I look.\n§f§", True),
        ("§f§f§", True),
        ("§g§", False),
        ("§f§ Done.", False),
        (f"The marker is {NAMESPACE}.", False),
        (f"{NAMESPACE}<tool_call>{NAMESPACE}</tool_call>", False),
        (f"{NAMESPACE}<tool_call>", False),
    ],
)
def test_where_a_call_may_come_text_is_free_and_calls_are_bound(compiler, text, is_allowed):
    """`§f§` is a block with a call of f, `§f§f§` one with two."""
    spec = call_grammar(tool_set(f=WEATHER), ToolChoice("auto"), TOKENIZER)
    fine = ("f", {"city": "Rome", "unit": "C"})
    for short, calls in (("§f§f§", [fine, fine]), ("§f§", [fine]), ("§g§", [("g", fine[1])])):
        text = text.replace(short, render_tool_calls(calls))
    assert accepts(compiler, spec, text) == is_allowed
    one = call_grammar(tool_set(f=WEATHER), ToolChoice("auto"), TOKENIZER, is_parallel=False)
    assert accepts(compiler, one, text) == (is_allowed and text.count("<invoke ") < 2)
    spelled = [*TOKENIZER.encode_plain(NAMESPACE), END]
    with pytest.raises(GrammarFault):
        compiler.compile(spec).start().accept(spelled)
    bad = render_tool_calls([("f", {"city": "Rome", "unit": "K"})])
    assert not accepts(compiler, spec, bad)


def test_an_answer_without_calls_is_text_that_cannot_spell_their_marker(compiler):
    for text in ("", "a ]<] b", "It is sunny.\n"):
        assert accepts(compiler, text_grammar(), text)
    with pytest.raises(GrammarFault):
        compiler.compile(text_grammar()).start().accept(TOKENIZER.encode_plain(f"a {NAMESPACE}<tool_call>"))


def test_the_marker_is_a_control_token_and_never_text(compiler):
    """A string that spells the closing tag in ordinary tokens would end its element."""
    spec = call_grammar(tool_set(f={"properties": {"x": {"type": "string"}}}), REQUIRED, TOKENIZER)
    whole = render_tool_calls([("f", {"x": "ab"})])
    cut = whole.index("ab") + 1
    matcher = compiler.compile(spec).start()
    matcher.accept(TOKENIZER.encode(whole[:cut]))
    matcher.accept(TOKENIZER.encode_plain(NAMESPACE[:-1]))
    with pytest.raises(GrammarFault):
        matcher.accept(TOKENIZER.encode_plain(NAMESPACE[-1]))


@pytest.mark.parametrize(
    ("choice", "is_parallel", "names", "is_allowed"),
    [
        (REQUIRED, True, ["f"], True),
        (REQUIRED, True, ["g", "f", "g"], True),
        (REQUIRED, True, [], False),
        (REQUIRED, True, ["h"], False),
        (REQUIRED, False, ["g"], True),
        (REQUIRED, False, ["f", "f"], False),
        (ToolChoice("named", "g"), True, ["g", "g"], True),
        (ToolChoice("named", "g"), True, ["f"], False),
        (ToolChoice("named", "g"), True, ["g", "f"], False),
    ],
)
def test_the_choice_says_which_functions_and_how_many_calls(compiler, choice, is_parallel, names, is_allowed):
    none = {"type": "object", "properties": {}}
    spec = call_grammar(tool_set(f=none, g=none), choice, TOKENIZER, is_parallel=is_parallel)
    assert accepts(compiler, spec, render_tool_calls([(name, {}) for name in names])) == is_allowed


def test_there_is_no_text_around_the_block(compiler):
    spec = call_grammar(tool_set(f={"properties": {}}), REQUIRED, TOKENIZER)
    block = render_tool_calls([("f", {})])
    assert accepts(compiler, spec, block)
    assert not accepts(compiler, spec, f"Sure. {block}")
    assert not accepts(compiler, spec, f"{block}\n")


@pytest.mark.parametrize(
    ("schema", "allowed", "forbidden"),
    [
        ({"type": "boolean"}, ["true", "false"], ["True", "1", ""]),
        ({"type": ["integer", "null"]}, ["3", "null", "-10"], ["", "x", "3.5"]),
        ({"type": "string", "maxLength": 3}, ["", "abc"], ["abcd"]),
        ({"type": "string", "minLength": 2, "maxLength": 20}, ["ab", "a" * 20], ["", "a", "a" * 21]),
        ({"type": "string", "minLength": 2}, ["ab", "é\n"], ["", "é"]),
        ({"type": "string", "maxLength": 0}, [""], ["a"]),
        ({"type": "string", "pattern": "^[a-z]+/[0-9]{2}$"}, ["ab/12"], ["ab/1", "/12", "ab/123"]),
        ({"type": "string", "pattern": "b"}, ["b", "abc"], ["", "ac"]),
        ({"type": "string", "enum": ["", "a<b", 'q"q']}, ["", "a<b", 'q"q'], ["a", "null"]),
        ({"const": "x"}, ["x"], ["", "y"]),
        ({"enum": [1, "one", None]}, ["1", "one", "null"], ["2", "", "two"]),
        ({"type": ["string", "null"]}, ["", "null", "12", "x"], []),
        ({"type": ["string", "integer"]}, ["x", "12"], ["1x", "-", ""]),
        ({"type": ["string", "array"], "items": {"type": "integer"}}, ["x", "[1, 2]", "1"], ['["a"]', "[x"]),
        ({"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}, ["", "x"], []),
        ({"anyOf": [{"enum": ["a"]}, {"type": "integer"}]}, ["a", "7"], ["b", ""]),
        ({"type": "object"}, ["{}", '{"a": [1]}'], ["", "x", "["]),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, ['{"a": 1}'], ['{"a": "b"}']),
        ({"allOf": [{"type": "integer"}]}, ["1"], ["x"]),
        ({"type": "integer", "format": "int64"}, ["1"], ["x"]),
        ({"type": "string", "format": "date"}, ["today"], []),
        ({}, ["", "x", "[1"], []),
    ],
)
def test_values(compiler, schema, allowed, forbidden):
    for text in allowed:
        assert value_is_allowed(compiler, schema, text), text
    for text in forbidden:
        assert not value_is_allowed(compiler, schema, text), text


def test_a_schema_that_holds_itself(compiler):
    tree = {
        "type": "object",
        "properties": {"root": {"$ref": "#/$defs/node"}},
        "required": ["root"],
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
                },
                "required": ["name"],
            }
        },
    }
    spec = call_grammar(tool_set(f=tree), REQUIRED, TOKENIZER)
    deep = {"name": "a", "children": [{"name": "b"}, {"name": "c", "children": [{"name": ""}]}]}
    assert accepts(compiler, spec, render_tool_calls([("f", {"root": deep})]))
    assert not accepts(compiler, spec, render_tool_calls([("f", {"root": {"name": "a", "children": [{}]}})]))


@pytest.mark.parametrize("seed", range(60))
def test_what_is_drawn_is_read_back_as_valid_arguments(compiler, seed):
    draws = random.Random(seed)
    tools = tool_set(f=random_parameters(draws), g=random_parameters(draws))
    grammar = compiler.compile(call_grammar(tools, REQUIRED, TOKENIZER))
    for _ in range(3):
        text = TOKENIZER.decode(draw_call(grammar.start(), TOKENIZER, draws))
        answer = split_tool_calls(text, tools.parameters, lambda: "id")
        assert answer.content == ""
        assert answer.unfinished is None
        assert answer.calls
        for call in answer.calls:
            value = json.loads(call.arguments)
            assert is_valid(value, tools.parameters[call.name]), (text, value)


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"type": "string", "not": {"const": "x"}}, "the rule 'not'"),
        ({"allOf": [{"type": "string"}, {"minLength": 1}]}, "the rule 'allOf'"),
        ({"type": ["string", "integer"], "pattern": "a"}, "beside other types"),
        ({"type": "string", "pattern": "a|^b"}, "anchors"),
        ({"type": "string", "enum": [f"a{NAMESPACE}"]}, "cannot be written"),
        ({"$ref": "#/$defs/missing"}, "which it does not hold"),
        ({"type": "array", "items": {"$ref": "#"}, "uniqueItems": True}, "references to"),
        (False, "is false, and the member is required"),
    ],
)
def test_what_cannot_be_enforced_is_refused_with_its_place(schema, says):
    parameters = {"type": "object", "properties": {"x": schema}, "required": ["x"]}
    with pytest.raises(UnsupportedFeature, match=says) as caught:
        call_grammar(tool_set(f=parameters), REQUIRED, TOKENIZER)
    assert "f.x" in str(caught.value)
    assert caught.value.param == "tools"


def test_parameters_that_are_no_plain_object_are_refused():
    tools = parse_tools([{"type": "function", "function": {"name": "f", "parameters": {"patternProperties": {}}}}])
    with pytest.raises(UnsupportedFeature, match="not plainly an object"):
        call_grammar(tools, REQUIRED, TOKENIZER)


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"type": "array", "items": {"type": "integer"}, "uniqueItems": True}, "tool f.x .*at #: 'uniqueItems' is not"),
        ({"type": "array", "prefixItems": [{"not": {}}]}, "tool f.x .*at #/prefixItems/0: 'not' is not supported"),
        ({"type": "string", "pattern": "^(?=a)b$"}, "tool f.x .*look-around"),
    ],
)
def test_a_schema_that_cannot_be_enforced_is_refused_by_its_place(schema, says):
    with pytest.raises(UnsupportedFeature, match=says) as caught:
        call_grammar(tool_set(f={"properties": {"x": schema}}), REQUIRED, TOKENIZER)
    assert caught.value.param == "tools"


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"oneOf": [{"const": 1}, {"const": 2}]}, "^the calls of the tools: oneOf cannot be enforced.*enum for"),
        ({"type": "integer", "minimum": 3, "maximum": 1}, "^the calls of the tools: no value satisfies the schema"),
        ({"type": "string", "pattern": "^(a$"}, "^the calls of the tools: the regular expression cannot be read: uncl"),
    ],
)
def test_an_error_about_the_grammar_shows_nothing_of_it(compiler, schema, says):
    spec = call_grammar(tool_set(f={"properties": {"x": schema}}), REQUIRED, TOKENIZER)
    with pytest.raises(RequestError, match=says) as caught:
        compiler.compile(spec)
    assert len(str(caught.value)) < 300
    assert not any(word in str(caught.value) for word in ("TEXT", "coerce", "call:", " | ", "%json"))


def test_a_tokenizer_without_the_marker_cannot_force_a_call():
    with pytest.raises(UnsupportedFeature, match="no token for the marker"):
        call_grammar(tool_set(f={"properties": {}}), REQUIRED, grammar_tokenizer())
