"""Errors about constraints speak of what the caller sent, and of nothing that was made of it."""

from __future__ import annotations

import pytest

from slipstream.base.errors import RequestError
from slipstream.text.grammar.compiler import GrammarCompiler
from slipstream.text.grammar.explain import UNUSABLE, refusal_of
from slipstream.wire.grammar import GrammarSpec
from support.grammar_world import grammar_tokenizer

TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
LEAKS = ("coerce_one_of", "Unimplemented", "retriever", "x-guidance", "segment_0", "NoExtensionBias", "json-schema:")


@pytest.fixture(scope="module")
def compiler():
    with GrammarCompiler(grammar_tokenizer()) as compiler:
        yield compiler


def one_structure(schema):
    return GrammarSpec.structural({"structures": [{"begin": "<a>", "schema": schema, "end": ""}], "triggers": ["<a"]})


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (
            GrammarSpec.json_schema({"items": {"oneOf": [{"const": 1}, {"const": 2}]}}),
            "json_schema: oneOf at #/items cannot be enforced: .*give anyOf, or enum for constants",
        ),
        (
            GrammarSpec.json_schema({"properties": {str(name): {"oneOf": [NUMBER, NUMBER]} for name in range(5)}}),
            "oneOf at #/properties/0, #/properties/1, #/properties/2 and others cannot",
        ),
        (one_structure({"oneOf": [NUMBER, NUMBER]}), "^structural: oneOf at # cannot be enforced"),
        (one_structure({"minimum": 2, "maximum": 1, **NUMBER}), r"no value satisfies the schema \(minimum \(2\) is"),
        (GrammarSpec.json_schema({"allOf": [TEXT, NUMBER]}), "no value satisfies the schema"),
        (GrammarSpec.json_schema({"$ref": "#"}), "json_schema: no text satisfies it"),
        (GrammarSpec.json_schema({"$ref": "#", "type": "object"}), "circular references with sibling keys"),
        (GrammarSpec.json_schema({"$defs": {"a": {"$ref": "http://x/y"}}, **TEXT}), r"a \$ref leads outside"),
        (GrammarSpec.json_schema({"pattern": "(a"}), r"the regular expression '\(a' cannot be read: unclosed group"),
        (GrammarSpec.regex("a(?=b)"), "^regex: look-around, .*is not supported: write out"),
        (GrammarSpec.regex("(a"), r"^regex: the regular expression '\(a' cannot be read: unclosed group: correct it"),
        (GrammarSpec.regex(r"[^\s\S]"), "^regex: no text satisfies it, or it is too complex: loosen or simplify it"),
        (GrammarSpec.grammar("start: nobody"), r'grammar: at 1\(8\): unknown name: "nobody"\n.*start: nobody'),
        (GrammarSpec.grammar("other: /a/"), "^grammar: no start rule found: correct the grammar"),
        (GrammarSpec.grammar("start: <no>"), 'unknown special token: "<no>": correct the grammar$'),
        (GrammarSpec.grammar('start: %json {"uniqueItems": true}'), "an inline schema: at #: 'uniqueItems' is not"),
        (GrammarSpec.grammar("root ::= nobody"), "grammar: the EBNF cannot be read: Rule 'nobody' not found"),
    ],
)
def test_what_is_told(compiler, spec, says):
    with pytest.raises(RequestError, match=says) as caught:
        compiler.compile(spec)
    assert caught.value.code == "invalid_grammar"
    assert not any(leak in str(caught.value) for leak in LEAKS)
    assert UNUSABLE not in str(caught.value)


def test_a_grammar_of_this_project_is_never_shown():
    listing = 'at 2(8): unknown name: "r1"\n   1 | start: SECRET\n   2 | call: r1\n              ^'
    own = GrammarSpec("grammar", "start: SECRET\ncall: r1", is_own=True)
    told = str(refusal_of(own, UNUSABLE + listing))
    assert told == 'the calls of the tools: unknown name: "r1": correct it'
    assert "SECRET" in str(refusal_of(GrammarSpec.grammar(own.text), listing)), "what a caller wrote is shown"
