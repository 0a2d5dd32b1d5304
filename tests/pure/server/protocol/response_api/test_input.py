"""Inputs of /v1/responses become the shared conversation; what cannot is named where the caller wrote it."""

from __future__ import annotations

import pytest

from slipstream.base.errors import RequestError, UnsupportedFeature
from slipstream.server.protocol.response_api.input import EFFORTS, ask_of, effort_of, grammar_of
from slipstream.server.protocol.response_api.requests import ResponseRequest
from slipstream.text.messages import MAX_MESSAGES
from slipstream.text.tools.schema import ToolChoice
from slipstream.wire.grammar import GrammarSpec
from support.answer_world import WEATHER, refusal_of

TOOL = {"type": "function", "name": "weather", "description": "tells it", "parameters": WEATHER, "strict": None}


def ask(given="hi", **fields):
    return ask_of(ResponseRequest(input=given, **fields))


def said(role, *texts):
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text} for text in texts]}


def called(id_="c1", arguments='{"city": "Paris"}', **more):
    return {"type": "function_call", "call_id": id_, "name": "weather", "arguments": arguments, **more}


def thought(*texts, **more):
    return {"type": "reasoning", "content": [{"type": "reasoning_text", "text": text} for text in texts], **more}


def answered(id_="c1", output="sunny"):
    return {"type": "function_call_output", "call_id": id_, "output": output}


def roles(given):
    return [(message["role"], message["content"]) for message in ask(given).messages]


def test_a_string_an_easy_message_and_parts_say_the_same():
    wanted = [{"role": "user", "content": "hi"}]
    for given in ("hi", [{"role": "user", "content": "hi"}], [said("user", "h", "i")]):
        assert ask(given).messages == wanted
    assert ask("hi", instructions="be brief").messages == [{"role": "system", "content": "be brief"}, *wanted]
    assert ask([said("developer", "x"), said("user", "hi")]).messages[0] == {"role": "developer", "content": "x"}


def test_one_turn_of_the_assistant_is_one_message():
    items = [
        said("user", "hi"),
        thought("I should ", "look", id="rs", summary=[{"type": "summary_text", "text": "s"}], encrypted_content="z"),
        said("assistant", "Looking."),
        called(status="completed", id="fc"),
        called("c2", ""),
        answered(),
        answered("c2", [{"type": "input_text", "text": "ra"}, {"type": "input_text", "text": "in"}]),
        said("assistant", "It varies."),
    ]
    assert ask(items, tools=[TOOL]).messages[1:] == [
        {
            "role": "assistant",
            "content": "Looking.",
            "reasoning_content": "I should look",
            "tool_calls": [
                {"id": id_, "type": "function", "function": {"name": "weather", "arguments": arguments}}
                for id_, arguments in (("c1", {"city": "Paris"}), ("c2", {}))
            ],
        },
        {"role": "tool", "content": "sunny", "tool_call_id": "c1"},
        {"role": "tool", "content": "rain", "tool_call_id": "c2"},
        {"role": "assistant", "content": "It varies."},
    ]


def test_where_a_turn_ends():
    assert roles([said("assistant", "a"), said("assistant", "b")]) == [("assistant", "a"), ("assistant", "b")]
    assert roles([said("assistant", "a"), thought("t"), said("assistant", "b")]) == [
        ("assistant", "a"),
        ("assistant", "b"),
    ]
    # Text behind a call stays with it: its result must follow.
    assert roles([said("assistant", "a"), called(), said("assistant", "b"), answered()]) == [
        ("assistant", "ab"),
        ("tool", "sunny"),
    ]
    assert roles([called(), thought("t"), called("c2")]) == [("assistant", ""), ("assistant", "")]


def test_reasoning_that_cannot_be_read_is_left_out():
    items = [thought(encrypted_content="z", summary=[]), said("assistant", "a")]
    assert ask(items).messages == [{"role": "assistant", "content": "a"}]


def test_tools_and_choices():
    found = ask(tools=[TOOL, {"type": "function", "name": "g", "strict": True}])
    assert found.tools.names == ("weather", "g")
    assert [tool.is_strict for tool in found.tools.tools] == [False, True]
    assert found.tools.tools[0].parameters == WEATHER
    for choice, wanted in (
        (None, ToolChoice("auto")),
        ("none", ToolChoice("none")),
        ("required", ToolChoice("required")),
        ({"type": "function", "name": "weather"}, ToolChoice("named", "weather")),
    ):
        assert ask(tools=[TOOL], tool_choice=choice).tool_choice == wanted
    assert ask().tool_choice == ToolChoice("none")
    assert not ask(parallel_tool_calls=False).parallel_tool_calls


def test_effort_turns_reasoning_on_or_off():
    assert ask().template_kwargs == ask(reasoning={"summary": "auto"}).template_kwargs == {}
    for effort in EFFORTS:
        mode = "disabled" if effort == "none" else "enabled"
        assert ask(reasoning={"effort": effort}).template_kwargs == {"thinking_mode": mode}
        assert effort_of({"effort": effort}) == effort


def test_the_form_of_the_text():
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    form = {"type": "json_schema", "name": "n", "schema": schema, "strict": True, "description": None}
    assert grammar_of({"format": form, "verbosity": "medium"}) == GrammarSpec.json_schema(schema)
    assert grammar_of({"format": {"type": "json_object"}}) == GrammarSpec.json_object()
    assert grammar_of(None) is grammar_of({}) is grammar_of({"format": {"type": "text"}}) is None
    for bad, param in (
        ({"format": {"type": "regex"}}, "text.format.type"),
        ({"format": {"type": ["text"]}}, "text.format.type"),
        ({"format": {"type": {}}}, "text.format.type"),
        ({"format": {"type": "json_schema", "name": "n"}}, "text.format.schema"),
        ({"format": {"type": "text", "schema": {}}}, "text.format.schema"),
        ({"verbosity": "low"}, "text.verbosity"),
        ("json", "text"),
        ({"format": form | {"schema": {"x-guidance": {}}}}, "text"),
        ({"format": form | {"schema": {"enum": ["x" * 10**6]}}}, "text"),
    ):
        assert refusal_of(grammar_of, bad).param == param


BAD_INPUTS = [
    ([], "input", RequestError),
    (["hi"], "input[0]", RequestError),
    ([{"role": "user"}], "input[0].content", RequestError),
    ([{"content": "x"}], "input[0].role", RequestError),
    ([{"role": "tool", "content": "x"}], "input[0].role", RequestError),
    ([{"role": "user", "content": []}], "input[0].content", RequestError),
    ([{"role": "user", "content": ["x"]}], "input[0].content[0]", RequestError),
    ([{"role": "user", "content": [{"type": "input_image"}]}], "input[0].content[0].type", UnsupportedFeature),
    ([{"role": "user", "content": [{"type": "input_text"}]}], "input[0].content[0].text", RequestError),
    ([{"type": "item_reference", "id": "x"}], "input[0].type", UnsupportedFeature),
    ([{"type": "web_search_call", "id": "x"}], "input[0].type", UnsupportedFeature),
    ([called() | {"namespace": "n"}], "input[0].namespace", UnsupportedFeature),
    ([said("assistant", "x"), called(arguments="{")], "input[1].arguments", RequestError),
    ([called(arguments="[]")], "input[0].arguments", RequestError),
    ([called(arguments='{"a": "\ud800"}')], "input[0].arguments", RequestError),
    ([said("user", "x"), answered()], "input[1]", RequestError),
    ([called(), answered("c9")], "input[1].call_id", RequestError),
    ([thought() | {"content": [{"type": "text", "text": "x"}]}], "input[0].content[0].type", UnsupportedFeature),
    ([said("user", "x")] * (MAX_MESSAGES + 1), "input", RequestError),
    ([said("user", *["x"] * (MAX_MESSAGES + 1))], "input", RequestError),
]


@pytest.mark.parametrize(("given", "param", "kind"), BAD_INPUTS)
def test_items_that_are_not_accepted_are_named(given, param, kind):
    error = refusal_of(ask, given)
    assert (type(error), error.param) == (kind, param)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [5]}, "tools[0]"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools[0].function"),
        ({"tools": [TOOL | {"name": "a b"}]}, "tools[0].name"),
        ({"tools": [TOOL | {"parameters": {"type": "array"}}]}, "tools[0].parameters.type"),
        ({"tools": [TOOL | {"defer_loading": True}]}, "tools[0].defer_loading"),
        ({"tools": [TOOL] * 1000}, "tools"),
        ({"tools": [TOOL], "tool_choice": "any"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "allowed_tools"}}, "tool_choice.type"),
        ({"tools": [TOOL], "tool_choice": {"type": "function"}}, "tool_choice.name"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "g"}}, "tool_choice.name"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"reasoning": {"effort": "huge"}}, "reasoning.effort"),
        ({"reasoning": {"mode": "pro"}}, "reasoning.mode"),
        ({"include": ["message.output_text.logprobs"]}, "include"),
    ],
)
def test_fields_that_are_not_accepted_are_named(fields, param):
    assert refusal_of(ask, **fields).param == param
