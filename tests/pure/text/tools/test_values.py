"""Text of a value to JSON: the type is the schema's, and strings do not wait."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.text.tools.shapes import TYPES
from slipstream.text.tools.values import MAX_LITERAL_CHARS, TextValue
from support.cuts import cut, sizes
from support.tool_texts import load

STRING, ANY = {"string"}, set(TYPES)
type_sets = st.sets(st.sampled_from(sorted(TYPES)), min_size=1).map(frozenset)
value_texts = st.lists(
    st.sampled_from(
        ["1", "0", "-", ".5", "e3", " ", "\n", "null", "tr", "True", "{", '"a"', ":", "}", "[", "]", "é", "\\"]
    ),
    max_size=6,
).map("".join)


def run(pieces, types):
    value = TextValue(frozenset(types))
    return "".join([*(value.feed(piece) for piece in pieces), value.close()])


@given(value_texts, type_sets, sizes)
def test_any_cut_gives_the_same_json(text, types, piece_sizes):
    whole = run([text], types)
    load(whole)
    assert run(cut(text, piece_sizes), types) == whole
    assert run(list(text), types) == whole


@given(value_texts, type_sets)
def test_a_string_is_the_text_and_other_types_are_its_value(text, types):
    value = load(run([text], types))
    if isinstance(value, str):
        assert value == text
    elif text.strip(" \t\r\n"):
        allowed = types | {"integer"} if "number" in types else types
        assert "string" not in types or type_name(value) in allowed
        assert value == as_json(text)


def type_name(value):
    if isinstance(value, bool):
        return "boolean"
    names = {type(None): "null", int: "integer", float: "number", list: "array", dict: "object"}
    return names[type(value)]


def as_json(text):
    bare = text.strip(" \t\r\n")
    return {"none": None, "null": None, "true": True, "false": False}[bare.lower()] if bare.isalpha() else load(bare)


CASES = [
    ("12", STRING, "12"),
    (" x\n", STRING, " x\n"),
    ("null", STRING, "null"),
    ('{"a": 1}', STRING, '{"a": 1}'),
    ("", STRING, ""),
    ("12", {"integer"}, 12),
    (" 12\n", {"integer"}, 12),
    ("12.0", {"integer"}, 12),
    ("12.5", {"integer"}, 12.5),
    ("1e3", {"number", "integer"}, 1000.0),
    ("123456789012345678901234567890", {"integer"}, 123456789012345678901234567890),
    ("007", {"integer"}, "007"),
    ("+1", {"integer"}, "+1"),
    ("NaN", {"number", "integer"}, "NaN"),
    ("about 12", {"integer"}, "about 12"),
    ("", {"integer"}, ""),
    ("true", {"boolean"}, True),
    ("False", {"boolean"}, False),
    ("TRUE\n", {"boolean"}, True),
    ("None", {"null", "boolean"}, None),
    ("yes", {"boolean"}, "yes"),
    ("", {"integer", "null"}, None),
    ("", {"array", "null"}, []),
    (" ", {"array"}, []),
    ("", {"object"}, {}),
    ("", {"string", "array", "null"}, ""),
    ('["a", 1]', {"array"}, ["a", 1]),
    ('{"a": [1]}', {"object"}, {"a": [1]}),
    ("[1, 2", {"array"}, "[1, 2"),
    ('{"a": NaN}', {"object"}, '{"a": NaN}'),
    ("a, b", {"array"}, "a, b"),
    # A declared string among other types: what is exactly of another one is that.
    ("null", {"string", "null"}, None),
    ("None", {"string", "null"}, "None"),
    ("nullable", {"string", "null"}, "nullable"),
    ("12", {"string", "null"}, "12"),
    ("12", {"string", "integer"}, 12),
    ("12.0", {"string", "integer"}, "12.0"),
    ("True", {"string", "boolean"}, "True"),
    ("true", {"string", "boolean"}, True),
    ("[1]", {"string", "array"}, [1]),
    ("{}", {"string", "array"}, "{}"),
    # Nothing known: the best guess.
    ("12", ANY, 12),
    ("-0.5e-3", ANY, -0.0005),
    ("007", ANY, "007"),
    ("true", ANY, True),
    ("True", ANY, "True"),
    ('"quoted"', ANY, '"quoted"'),
    ("[1] and more", ANY, "[1] and more"),
    ('{"a": {"b": []}}', ANY, {"a": {"b": []}}),
    ("", ANY, ""),
]


@pytest.mark.parametrize(("text", "types", "expected"), CASES)
def test_by_example(text, types, expected):
    for pieces in ([text], list(text)):
        value = load(run(pieces, types))
        assert value == expected
        assert type(value) is type(expected)


@pytest.mark.parametrize("types", [STRING, {"string", "null"}, {"string", "integer", "boolean"}, ANY, {"integer"}])
def test_strings_stream(types):
    """From the character on that rules out other types, everything fed is returned at once."""
    value = TextValue(frozenset(types))
    assert value.feed("n") + value.feed("i") == '"ni'
    assert [value.feed(piece) for piece in (' "', "\n", "é")] == [' \\"', "\\n", "é"]
    assert value.close() == '"'


@pytest.mark.parametrize("text", ["\x00\x1f\x7f", '"\\/', "\u2028😀é", "\t\r\n\b\f", "</script>"])
def test_strings_are_escaped(text):
    written = run(list(text), STRING)
    assert json.loads(written) == text
    assert written == json.dumps(text, ensure_ascii=False)


def test_json_text_is_passed_on_as_written():
    assert run(['{"a" : 1.50,', '"a":2}\n'], {"object"}) == '{"a" : 1.50,"a":2}'
    assert run(["1.50"], {"number", "integer"}) == "1.50"


def test_limits():
    assert run(["1" * MAX_LITERAL_CHARS], ANY) == "1" * MAX_LITERAL_CHARS
    assert load(run(["1" * (MAX_LITERAL_CHARS + 1)], ANY)) == "1" * (MAX_LITERAL_CHARS + 1)
    assert load(run(list("1" * (MAX_LITERAL_CHARS + 1)), ANY)) == "1" * (MAX_LITERAL_CHARS + 1)
    deep = "[" * 100_000
    assert load(run([deep], ANY)) == deep
    assert load(run([deep + "]" * 100_000], {"array"})) == deep + "]" * 100_000
    long_number = "[" + "9" * 6_000 + "]"
    assert run([long_number], ANY) == long_number


@pytest.mark.parametrize(
    ("text", "types", "is_text"),
    [
        ("", STRING, True),
        ("", {"string", "null"}, True),
        ("", {"string", "object"}, False),
        ("", {"integer"}, False),
        ("", ANY, False),
        (" \n", ANY, False),
        (" 1", {"integer"}, True),
        ("{", ANY, True),
    ],
)
def test_where_tags_are_text(text, types, is_text):
    value = TextValue(frozenset(types))
    value.feed(text)
    assert value.is_text == is_text
