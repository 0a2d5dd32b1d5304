"""Written calls read back as they were, and what the syntax cannot carry is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import event, given

from slipstream.base.errors import RequestError
from slipstream.text.tools.render import render_tool_call, render_tool_calls
from slipstream.text.tools.syntax import NAMESPACE as NS
from support.cuts import cut, sizes
from support.tool_texts import load_calls, run, typed_calls, without_null_members


@given(typed_calls(), sizes)
def test_what_is_written_reads_back(schema_and_arguments, piece_sizes):
    schema, arguments = schema_and_arguments
    try:
        text = render_tool_call("f", arguments)
    except RequestError:
        event("refused")
        assert json.dumps(NS + "</", ensure_ascii=False)[1:-1] in json.dumps(arguments, ensure_ascii=False)
        return
    answer = run(cut(text, piece_sizes), {"f": schema})
    assert load_calls(answer) == [("f", without_null_members(arguments))]
    assert (answer.content, answer.unfinished) == ("", None)


def test_the_text_of_a_block():
    text = render_tool_calls([("f", {"a": "x y", "o": {"n": 1}, "l": [True, 2.5, None], "z": None}), ("g", {})])
    assert text == (
        f'{NS}<tool_call>{NS}<invoke name="f">{NS}<a>x y{NS}</a>{NS}<o>{NS}<n>1{NS}</n>{NS}</o>'
        f"{NS}<l>{NS}<item>true{NS}</item>{NS}<item>2.5{NS}</item>{NS}<item>{NS}</item>{NS}</l>{NS}</invoke>"
        f'{NS}<invoke name="g">{NS}</invoke>{NS}</tool_call>'
    )


@pytest.mark.parametrize(
    "arguments",
    [
        {"a": f"x{NS}</a>"},
        {"a": {"b": f"{NS}</a>"}},
        {"a": [f"{NS}</item>"]},
        {"a": f"{NS}</invoke>"},
        {"a": f"{NS}</tool_call>"},
        {"": 1},
        {"/a": 1},
        {"a>": 1},
        {"a<": 1},
        {"a\nb": 1},
        {"a": {"x" * 257: 1}},
        {'invoke name="f"': 1},
        {"a": float("nan")},
        {"a": [float("inf")]},
    ],
)
def test_what_cannot_be_carried_is_refused(arguments):
    with pytest.raises(RequestError) as caught:
        render_tool_call("f", arguments)
    assert caught.value.param == "arguments"


@pytest.mark.parametrize("name", ['a"b', "a>b", "a<b", "a\nb", "x" * 250])
def test_names_that_break_the_tag_are_refused(name):
    with pytest.raises(RequestError) as caught:
        render_tool_call(name, {})
    assert caught.value.param == "name"


@pytest.mark.parametrize("text", [f"{NS}</b>", f"{NS}<a>", f"]<{NS}", "</a>", f"x{NS}</ a>", f"{NS}<invoke name='g'>"])
def test_other_texts_like_tags_are_carried_by_declared_strings(text):
    schema = {"f": {"properties": {"a": {"type": "string"}}}}
    assert load_calls(run([render_tool_call("f", {"a": text})], schema)) == [("f", {"a": text})]


@pytest.mark.parametrize(
    ("value", "read"), [("12", 12), ("true", True), ("null", None), ([], ""), ({}, ""), (f"{NS}<b>", {"b": ""})]
)
def test_what_only_a_schema_brings_back(value, read):
    """The documented loss: without a schema these come back as something else, with one as they were."""
    text = render_tool_call("f", {"a": value})
    assert load_calls(run([text], {})) == [("f", {"a": read})]
    kinds = {str: "string", list: "array", dict: "object"}
    schema = {"f": {"properties": {"a": {"type": kinds[type(value)]}}}}
    assert load_calls(run([text], schema)) == [("f", {"a": value})]
