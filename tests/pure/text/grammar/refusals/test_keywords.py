"""What is said of keywords, in the code and on the page about structured output, is what compiling shows."""

from __future__ import annotations

import json
import re

import pytest

from slipstream.base.errors import RequestError
from slipstream.text.grammar.backend import build_tokenizer, explain_error, read_vocabulary, start_matcher
from slipstream.text.grammar.compiler import GrammarCompiler
from slipstream.text.grammar.lower import _lower_schema
from slipstream.text.grammar.matcher import GrammarFault
from slipstream.text.grammar.refusals.keywords import (
    COMMENTS,
    FORMATS,
    SUPPORTED,
    UNSUPPORTED,
    check_keywords,
    find_fault,
    regex_refusal,
    walk,
)
from slipstream.wire.grammar import GrammarSpec
from support.grammar_world import grammar_tokenizer
from support.project import ROOT

TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
PAGE = (ROOT / "docs" / "howto" / "structured_output.md").read_text(encoding="utf-8")
LIBRARY = build_tokenizer(read_vocabulary(grammar_tokenizer()), grammar_tokenizer().encode_plain)

WITH: dict[str, tuple[dict, list, list]] = {
    "type": (NUMBER, [1], ["a", 1.5]),
    "enum": ({"enum": [1, "a"]}, ["a"], ["b"]),
    "const": ({"const": [1]}, [[1]], [[2]]),
    "anyOf": ({"anyOf": [TEXT, NUMBER]}, ["a", 1], [None]),
    "allOf": ({"allOf": [NUMBER, {"minimum": 3}]}, [3], [2]),
    "oneOf": ({"oneOf": [TEXT, NUMBER]}, ["a", 1], [None]),
    "$ref": ({"$ref": "#/$defs/a", "$defs": {"a": TEXT}}, ["a"], [1]),
    "$defs": ({"items": {"$ref": "#/$defs/a"}, "type": "array", "$defs": {"a": TEXT}}, [["a"]], [[1]]),
    "definitions": ({"$ref": "#/definitions/a", "definitions": {"a": TEXT}}, ["a"], [1]),
    "$anchor": ({"$ref": "#here", "$defs": {"a": {"$anchor": "here", **TEXT}}}, ["a"], [1]),
    "$id": ({"$id": "http://x/y", "$ref": "http://x/y#/$defs/a", "$defs": {"a": TEXT}}, ["a"], [1]),
    "properties": ({"type": "object", "properties": {"a": TEXT}}, [{"a": "x"}], [{"a": 1}]),
    "required": ({"type": "object", "properties": {"a": TEXT}, "required": ["a"]}, [{"a": "x"}], [{}]),
    "additionalProperties": ({"type": "object", "additionalProperties": False}, [{}], [{"a": 1}]),
    "patternProperties": ({"type": "object", "patternProperties": {"^a": TEXT}}, [{"ab": "x"}], [{"ab": 1}]),
    "minProperties": ({"type": "object", "minProperties": 1}, [{"a": 1}], [{}]),
    "maxProperties": ({"type": "object", "maxProperties": 1}, [{"a": 1}], [{"a": 1, "b": 1}]),
    "items": ({"type": "array", "items": TEXT}, [["a"]], [[1]]),
    "prefixItems": ({"type": "array", "prefixItems": [TEXT]}, [["a"]], [[1]]),
    "additionalItems": ({"type": "array", "items": [TEXT], "additionalItems": False}, [["a"]], [["a", 1]]),
    "minItems": ({"type": "array", "items": NUMBER, "minItems": 2}, [[1, 2]], [[1]]),
    "maxItems": ({"type": "array", "items": NUMBER, "maxItems": 1}, [[1]], [[1, 2]]),
    "minLength": ({**TEXT, "minLength": 2}, ["ab"], ["a"]),
    "maxLength": ({**TEXT, "maxLength": 1}, ["a"], ["ab"]),
    "pattern": ({**TEXT, "pattern": "^a+$"}, ["aa"], ["ab"]),
    "format": ({**TEXT, "format": "date"}, ["2024-01-31"], ["2024-31-01"]),
    "minimum": ({**NUMBER, "minimum": 3}, [3], [2]),
    "maximum": ({**NUMBER, "maximum": 3}, [3], [4]),
    "exclusiveMinimum": ({**NUMBER, "exclusiveMinimum": 3}, [4], [3]),
    "exclusiveMaximum": ({**NUMBER, "exclusiveMaximum": 3}, [2], [3]),
    "multipleOf": ({**NUMBER, "multipleOf": 3}, [6], [7]),
}
"""By keyword: a schema with it, values that it allows, values that it does not."""


@pytest.fixture(scope="module")
def compiler():
    with GrammarCompiler(grammar_tokenizer()) as compiler:
        yield compiler


def takes(compiler, schema, value) -> bool:
    matcher = compiler.compile(GrammarSpec.json_schema(schema)).start()
    tokenizer = grammar_tokenizer()
    try:
        matcher.accept([*tokenizer.encode_plain(json.dumps(value)), tokenizer.eos_token_ids[0]])
    except GrammarFault:
        return False
    return True


def library_says(schema) -> str | None:
    return explain_error(start_matcher(LIBRARY, _lower_schema(schema)))


def listed(head: str) -> list[str]:
    """Return the names that the page lists behind a line."""
    (block,) = re.findall(rf"^{head}[^\n]*:\n(.*?)(?:\.\n|, and any)", PAGE, re.DOTALL | re.MULTILINE)
    return re.findall(r"`([^`]+)`", block)


def test_the_page_lists_what_the_code_does():
    assert listed("Enforced") == list(SUPPORTED) == list(WITH)
    assert listed("Refused, with the place") == list(UNSUPPORTED)
    assert listed("Change nothing") == list(COMMENTS)
    assert listed("Values of `format`") == list(FORMATS)


@pytest.mark.parametrize("keyword", SUPPORTED)
def test_what_is_called_enforced_is(compiler, keyword):
    schema, allowed, forbidden = WITH[keyword]
    assert keyword in json.dumps(schema)
    assert all(takes(compiler, schema, value) for value in allowed)
    assert not any(takes(compiler, schema, value) for value in forbidden)


@pytest.mark.parametrize("keyword", UNSUPPORTED)
def test_what_is_refused_could_not_be_compiled(compiler, keyword):
    value = {"uniqueItems": True, "minContains": 1, "maxContains": 1, "dependentRequired": {"a": ["b"]}}
    value |= {"dependencies": {"a": ["b"]}, "$dynamicRef": "#a", "$recursiveRef": "#", "$dynamicAnchor": "a"}
    schema = {keyword: value.get(keyword, {"a": TEXT} if keyword == "dependentSchemas" else TEXT)}
    assert keyword in str(library_says(schema)), "the library learned it: move it to SUPPORTED"
    inside = {"type": "object", "properties": {"a/b": {"type": "array", "items": schema}}}
    with pytest.raises(RequestError) as caught:
        compiler.compile(GrammarSpec.json_schema(inside))
    assert str(caught.value) == (
        f"json_schema: at #/properties/a~1b/items: {keyword!r} is not supported: {UNSUPPORTED[keyword]}"
    )
    assert caught.value.code == "invalid_grammar"


@pytest.mark.parametrize("keyword", [*COMMENTS, "x-foo", "foo"])
def test_what_changes_nothing_changes_nothing(compiler, keyword):
    values = {"nullable": True, "$schema": "https://json-schema.org/draft/2020-12/schema"}
    schema = {**NUMBER, keyword: values.get(keyword, "x")}
    assert takes(compiler, schema, 5)
    assert not takes(compiler, schema, None)


@pytest.mark.parametrize("name", [*FORMATS, "uri-reference", "regex", "json-pointer", "iri", "binary"])
def test_formats_are_those_that_the_library_knows(name):
    schema = {**TEXT, "format": name}
    assert (library_says(schema) is None) == (find_fault(schema) is None) == (name in FORMATS)


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"$ref": "http://x.y/z"}, "at #: '$ref' is 'http://x.y/z', which is outside of this schema.*into \\$defs"),
        ({"items": {"$ref": "other.json"}}, "at #/items: '$ref' is 'other.json', which is outside"),
        ({"$ref": "#/$defs/b", "$defs": {"a": TEXT}}, "at #: '$ref' is '#/$defs/b', which this schema does not hold"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"not": {}}}}, "at #/$defs/a: 'not' is not supported"),
        ({"type": ["string", "strin"]}, "at #: 'type' is 'strin', which is none: give one of null, "),
        ({"properties": {"a": {"pattern": "(?=a)b"}}}, "at #/properties/a: 'pattern': look-around"),
        ({"anyOf": [TEXT, {"format": "x"}]}, "at #/anyOf/1: the 'format' 'x' is not supported"),
    ],
)
def test_the_place_is_named(schema, says):
    with pytest.raises(RequestError, match="^here: " + says.replace("$ref", r"\$ref").replace("#/$defs", r"#/\$defs")):
        check_keywords("here", schema)


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {"$defs": {"unused": {"not": {}}}, "type": "object"},
        {"properties": {"not": TEXT, "$ref": TEXT, "uniqueItems": NUMBER}},
        {"enum": [{"not": 1}], "default": {"if": 1}},
        {"const": {"contains": 1}, "examples": [{"not": 1}]},
        {"type": "object", "properties": {"a": {"$ref": "#"}}},
        {"$id": "http://a/b.json", "$defs": {"x": TEXT}, "properties": {"q": {"$ref": "b.json#/$defs/x"}}},
    ],
)
def test_what_can_be_enforced_is_not_refused(schema):
    assert find_fault(schema) is None
    assert isinstance(schema, bool) or library_says(schema) is None


def test_schemas_that_hold_themselves_end():
    tree = {"type": "object", "properties": {"next": {"$ref": "#/$defs/t"}}, "$defs": {"t": {"$ref": "#"}}}
    assert find_fault(tree) is None
    assert [path for path, _ in walk(tree)] == ["#", "#/properties/next", "#/$defs/t"]


@pytest.mark.parametrize("pattern", ["(?=a)b", "a(?!b)", "(?<=a)b", "(?<!a)b", r"(a)\1", r"\\(?=a)", r"(?P<n>a)\k<n>"])
def test_constructs_of_regexes_that_are_not_supported(pattern):
    assert regex_refusal(pattern) is not None


@pytest.mark.parametrize("pattern", ["(?:a)b", r"\(\?=a", "(?i)a", r"\\1", "(?P<n>a)", "", "a{1,2}"])
def test_constructs_of_regexes_that_are(pattern):
    assert regex_refusal(pattern) is None


def test_the_examples_of_the_page_compile_and_mean_what_they_say(compiler):
    blocks = dict(re.findall(r"```(\w+)\n(.*?)```", PAGE, re.DOTALL))
    tokenizer = grammar_tokenizer()

    def allows(spec, text):
        try:
            compiler.compile(spec).start().accept([*tokenizer.encode_plain(text), tokenizer.eos_token_ids[0]])
        except GrammarFault:
            return False
        return True

    for name in ("ebnf", "lark"):
        spec = GrammarSpec.grammar(blocks[name])
        assert allows(spec, "let ab = 1.5")
        assert not allows(spec, "let ab=1.5")
    assert allows(GrammarSpec.grammar(blocks["lark"]), 'let ab = {"a": true}')
    tag = GrammarSpec.structural(blocks["json"])
    assert allows(tag, 'I add: <fn=sum>[1, 2]</fn> and <fn=say>"hi"</fn>.')
    assert not allows(tag, "<fn=sum>[true]</fn>")
    assert not allows(tag, "<fn=other>")
