"""A grammar is read for what it uses, not for what its strings and comments say."""

from __future__ import annotations

import pytest

from slipstream.base.errors import RequestError
from slipstream.text.grammar.lark import check_lark, is_ebnf, read_lark
from slipstream.text.grammar.limits import GrammarLimits

CONTROL = {"<tool_call>": 12, "</tool_call>": 13, "]~b]": 14, "[e~[": 15}
LIMITS = GrammarLimits(max_intersections=2)


def check(source, limits=LIMITS):
    return check_lark(source, CONTROL, frozenset({15}), limits)


def test_strings_regexes_and_comments_say_nothing():
    quiet = r"""
    start: "a & b ~ <tool_call>" /x&~y<z>\/&/i  // & ~ <tool_call> stop=1
    # temperature=1 & &
    other: "\"&" "%json"
    """
    facts = read_lark(quiet)
    assert (facts.num_conjunctions, facts.num_negations) == (0, 0)
    assert facts.controls == facts.options == facts.schemas == []


def test_operators_are_counted_and_repetition_is_none():
    facts = read_lark('start: A ~ 3\nA: /a/ & /b/ & ~/c/\nB: "x"~2..5 ~B')
    assert (facts.num_conjunctions, facts.num_negations) == (2, 2)


def test_inline_schemas_are_read_whole():
    facts = read_lark('start: %json {"a": "} & ~ <x>"} & b\nC: %regex {"substring_words": "a & b"}')
    assert facts.schemas == [{"a": "} & ~ <x>"}]
    assert facts.num_conjunctions == 1
    assert facts.controls == []


def test_broken_inline_json_is_left_to_the_library():
    assert read_lark('start: %json {"a" & <b>').num_conjunctions == 1


def test_deep_inline_json_is_refused():
    with pytest.raises(RequestError, match="nested too deeply"):
        read_lark("start: %json " + "[" * 100_000)


def test_control_tokens_are_resolved():
    assert check("start: <tool_call> x </tool_call>\nx: /a/") == {12, 13}
    assert check("start: <[12]> <[13-14]>") == {12, 13, 14}
    assert check("start: <[14,12-13]>") == {12, 13, 14}
    assert check("start: <unknown>") == frozenset()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("start: <[*]>", "one by one"),
        ("start: <[^12]>", "one by one"),
        ("start: <[11-12]>", "not control tokens"),
        ("start: <[13-999999999]>", "not control tokens"),
        ("start: <[15]>", "names the end token"),
        ("start: <[12-15]>", "names the end token"),
        ("start: <tool_call> A\nA: ~/b/", "beside control tokens"),
        ('start: a\na[stop="x"]: /b*/', "option 'stop' is not allowed"),
        ("start: a\na[lazy, max_tokens = 4]: /b*/", "option 'max_tokens' is not allowed"),
        ("start: a\na[temperature=0.5]: /b*/", "option 'temperature' is not allowed"),
        ('start: %json {"x-guidance": {"lenient": true}}', "'x-guidance' of an inline schema"),
    ],
)
def test_what_a_mask_cannot_honour_is_refused(source, message):
    with pytest.raises(RequestError, match=message) as caught:
        check(source)
    assert caught.value.code == "invalid_grammar"


def test_operators_are_bounded():
    check("start: A\nA: /a/ & ~/b/")
    with pytest.raises(RequestError, match="3 operators & and ~ are given, at most 2"):
        check("start: A\nA: /a/ & ~/b/ & /c/")


def test_inline_schemas_obey_the_limits():
    check('start: %json {"a": {}}', GrammarLimits(max_nesting=2))
    with pytest.raises(RequestError, match="an inline schema: nested 3 levels deep"):
        check('start: %json {"a": {"b": {}}}', GrammarLimits(max_nesting=2))


def test_ebnf_is_known_by_its_rules():
    assert is_ebnf('root ::= "a"')
    assert is_ebnf('root::="a" # start: x')
    assert not is_ebnf('start: "::=" /::=/ // ::=')
    assert not is_ebnf('begin: "a"')


def test_a_name_that_only_ends_like_an_option_is_free():
    assert check('start: last_stop\nlast_stop: "a"\nunstop: "b"') == frozenset()
