"""Every kind of specification means what it says, once compiled."""

from __future__ import annotations

import json

import pytest

from slipstream.base.errors import RequestError
from slipstream.text.grammar.compiler import GrammarCompiler
from slipstream.text.grammar.limits import GrammarLimits
from slipstream.text.grammar.lower import MAX_INDENT, lower_spec, split_control
from slipstream.wire.grammar import GrammarSpec
from support.grammar_world import CONTROL, accepts, grammar_tokenizer, letters, model_vocab_size, spell

CALL, CALL_END = (grammar_tokenizer().control_ids[text] for text in ("<tool_call>", "</tool_call>"))


@pytest.fixture(scope="module")
def compiler():
    with GrammarCompiler(grammar_tokenizer(), vocab_size=model_vocab_size()) as compiler:
        yield compiler


@pytest.fixture
def takes(compiler):
    def takes(spec, answer):
        tokens = letters(answer) if isinstance(answer, str) else answer
        return accepts(compiler.compile(spec), tokens)

    return takes


def test_any_object(takes):
    spec = GrammarSpec.json_object()
    assert takes(spec, '{"a": [1, {"b": null}], "c": "\\u00e9 é"}')
    assert takes(spec, "{}")
    for wrong in ("[]", "1", '"a"', "{} ", " {}", "{a:1}", '{"a"}', ""):
        assert not takes(spec, wrong)


def test_schemas_of_every_form(takes):
    assert takes(GrammarSpec.json_schema(True), "[1, 2]")
    spec = GrammarSpec.json_schema({"type": "array", "items": {"enum": ["a", 1]}, "maxItems": 2})
    assert takes(spec, '["a", 1]')
    assert not takes(spec, '["a", 1, 1]')
    assert not takes(spec, '["b"]')


def test_white_space_is_a_blank_or_an_indented_line(takes):
    spec = GrammarSpec.json_schema({"type": "array", "items": {"type": "integer"}})
    for fits in ("[1,2]", "[1, 2]", "[ 1 ,\n2 ]", "[\n" + " " * MAX_INDENT + "1\n]"):
        assert takes(spec, fits)
    for spread in ("[  1]", "[\n" + " " * (MAX_INDENT + 1) + "1]", "[\n\n1]", "[\t1]"):
        assert not takes(spec, spread)


def test_unknown_rules_of_a_schema_are_refused_and_unknown_notes_are_not(takes, compiler):
    assert takes(GrammarSpec.json_schema({"type": "null", "description": "x", "my-note": 1}), "null")
    for rule in ("not", "if", "uniqueItems", "dependentRequired", "contains", "propertyNames"):
        with pytest.raises(RequestError, match=f"at #: '{rule}' is not supported: "):
            compiler.compile(GrammarSpec.json_schema({rule: True if rule == "uniqueItems" else {}}))
    with pytest.raises(RequestError, match="the 'format' 'zip' is not supported"):
        compiler.compile(GrammarSpec.json_schema({"type": "string", "format": "zip"}))
    overlapping = {"oneOf": [{"type": "integer"}, {"type": "integer", "minimum": 3}]}
    with pytest.raises(RequestError, match="oneOf"):
        compiler.compile(GrammarSpec.json_schema(overlapping))


@pytest.mark.parametrize(
    ("pattern", "fits", "wrong"),
    [
        (r"[a-c]{2}/\d+", "ab/07", "ab/"),
        ("^a|b$", "b", "ab"),
        ('"\\n"', '"\n"', '"n"'),
        (r"\.\\/", ".\\/", "a\\/"),
        ("é+", "éé", "e"),
        ("", "", "a"),
    ],
)
def test_regexes_match_as_a_whole(takes, pattern, fits, wrong):
    assert takes(GrammarSpec.regex(pattern), fits)
    assert not takes(GrammarSpec.regex(pattern), wrong)


NASTY = [
    "",
    "a",
    "ab",
    'say "x"',
    "back\\slash",
    "line\nend",
    "\x00\x7f\t",
    "é😀\u2028",
    "// no # comment",
    "/re/",
    *CONTROL,
]


def test_a_choice_takes_its_texts_and_nothing_else(takes):
    spec = GrammarSpec.choice([text for text in NASTY if text != "a"])
    for text in NASTY:
        assert takes(spec, text) == (text != "a"), text
    assert not takes(spec, "abab")
    assert not takes(spec, "say x")


def test_a_choice_is_text_even_if_it_looks_like_a_control_token(takes):
    assert not takes(GrammarSpec.choice(["<tool_call>"]), [CALL])


def test_lark_and_ebnf_are_told_apart(takes):
    lark = GrammarSpec.grammar('start: "a" num ("," num)*\nnum: /[0-9]/ | "(" num ")"\n// ::= no rule')
    ebnf = GrammarSpec.grammar('root ::= "a" num ("," num)*\nnum ::= [0-9] | "(" num ")"\n# start: no rule')
    for spec in (lark, ebnf):
        assert takes(spec, "a1,((2)),3")
        assert not takes(spec, "a1,((2),3")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("start: nobody", "unknown name"),
        ('begin: "a"', "no start"),
        ("root ::= (", "EBNF cannot be read"),
        ("root ::= nobody", "EBNF cannot be read"),
        ("start: <no_such_token>", "unknown special token"),
        ("start: a\na: a", "no text satisfies it"),
        ("root ::= " + "(" * 5000, "nested too deeply"),
    ],
)
def test_broken_grammars_are_refused_with_a_reason(compiler, source, message):
    with pytest.raises(RequestError, match=message):
        compiler.compile(GrammarSpec.grammar(source))


def test_a_large_ebnf_is_refused_and_a_large_lark_grammar_is_not():
    rules = "\n".join(f'r{place}: "a{place}"' for place in range(100))
    limits = GrammarLimits(max_ebnf_bytes=100)
    lower_spec(GrammarSpec.grammar(f"start: r0\n{rules}"), grammar_tokenizer(), limits)
    with pytest.raises(RequestError, match="at most 100 bytes are allowed: send a smaller one, or Lark"):
        lower_spec(GrammarSpec.grammar("root ::= r0\n" + rules.replace(":", " ::=")), grammar_tokenizer(), limits)


def test_named_control_tokens_are_taken_as_tokens(takes):
    spec = GrammarSpec.grammar('start: "a" <tool_call> /b*/ <[%d]>' % CALL_END)  # noqa: UP031
    assert takes(spec, [*letters("a"), CALL, *letters("bb"), CALL_END])
    assert not takes(spec, letters("a<tool_call>bb</tool_call>"))


def test_negation_does_not_let_control_tokens_in(takes):
    spec = GrammarSpec.grammar("start: T\nT: ~/(?s:.*)stop(?s:.*)/")
    assert takes(spec, "go on")
    assert not takes(spec, "please stop it")
    assert not takes(spec, [*letters("go"), CALL])


def test_control_tokens_are_split_from_text():
    assert split_control("a<tool_call>\nb</tool_call>", grammar_tokenizer()) == ["a", CALL, "\nb", CALL_END]
    assert split_control("é only", grammar_tokenizer()) == ["é only"]
    assert split_control("", grammar_tokenizer()) == []


def structure(begin, schema, end):
    return {"begin": begin, "schema": schema, "end": end}


TEXTUAL = GrammarSpec.structural(
    {
        "structures": [
            structure("<f=add>", {"type": "integer"}, "</f>"),
            structure("<f=say>", {"type": "array", "items": {"const": "x"}}, "</f>"),
            structure("<g>", True, "</g>"),
        ],
        "triggers": ["<f=", "<g"],
    }
)


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("", True),
        ("just words, 1 < 2", True),
        ("<f=add>12</f>", True),
        ('see <f=say>["x", "x"]</f> and <f=add>-1</f>.', True),
        ("<g>{}</g><g>null</g>", True),
        ("<f=add>12", False),
        ("<f=mul>12</f>", False),
        ("<f=", False),
        ("ok <f=add>1</f> then <f=add>x</f>", False),
        ('<f=add>["x"]</f>', False),
        ("<g >1</g>", False),
    ],
)
def test_a_trigger_binds_what_follows(takes, text, fits):
    assert takes(TEXTUAL, text) is fits


def test_structures_in_control_tokens(takes):
    spec = GrammarSpec.structural(
        {
            "structures": [structure("<tool_call>\n", {"type": "integer"}, "\n</tool_call>")],
            "triggers": ["<tool_call>"],
        }
    )
    call = [CALL, *letters("\n12\n"), CALL_END]
    assert takes(spec, [*letters("so: "), *call, *call, *letters(" done")])
    assert takes(spec, [*letters("<tool_call>\n12\n"), CALL_END])
    assert not takes(spec, [CALL, *letters("\nx\n"), CALL_END])
    assert not takes(spec, letters("<tool_call>\nx"))
    assert not takes(spec, [CALL, *letters("\n12\n</tool_call>")])
    assert not takes(spec, call[:-1])
    assert not takes(spec, [*letters("so "), CALL_END])


@pytest.mark.parametrize(
    ("structures", "triggers", "message"),
    [
        ([structure("<f>", {}, "")], ["<f", "<g"], "no structure begins with the trigger '<g'"),
        ([structure("<f>", {}, ""), structure("<h>", {}, "")], ["<f"], "begins with '<h>' has no trigger"),
        ([structure("a<tool_call>", {}, "")], ["a<tool_call>"], "mixes text and control tokens"),
        ([structure("<f>", {}, "[e~[")], ["<f"], "holds the end token"),
        ([structure("<f>", False, "")], ["<f"], "a schema is false"),
    ],
)
def test_structures_that_do_not_fit_are_refused(structures, triggers, message):
    spec = GrammarSpec.structural({"structures": structures, "triggers": triggers})
    with pytest.raises(RequestError, match=message):
        lower_spec(spec, grammar_tokenizer(), GrammarLimits())


def test_limits_reach_every_kind():
    deep = {"items": {"items": {}}}
    limits = GrammarLimits(max_nesting=2)
    value = {"structures": [structure("<f>", deep, "")], "triggers": ["<f"]}
    inline = GrammarSpec.grammar(f"start: %json {json.dumps(deep)}")
    for spec in (GrammarSpec.json_schema(deep), GrammarSpec.structural(value), inline):
        with pytest.raises(RequestError, match="nested 3 levels deep"):
            lower_spec(spec, grammar_tokenizer(), limits)
    with pytest.raises(RequestError, match="regex: 3 bytes are given"):
        lower_spec(GrammarSpec.regex("abc"), grammar_tokenizer(), GrammarLimits(max_regex_bytes=2))


def test_the_tokenizers_own_spelling_is_taken_too(takes):
    assert takes(GrammarSpec.json_object(), spell('{"name": "Ann", "tags": [1, 2]}'))
