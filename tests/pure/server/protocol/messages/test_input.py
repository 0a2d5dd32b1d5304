"""Conversations of the Messages API become the shared ones; what cannot is named where the caller wrote it."""

from __future__ import annotations

import pytest

from slipstream.base.errors import RequestError, UnsupportedFeature
from slipstream.server.protocol.messages.input import ask_of, grammar_of
from slipstream.server.protocol.messages.requests import CountTokensRequest
from slipstream.text.messages import MAX_MESSAGES
from slipstream.text.tools.schema import ToolChoice
from slipstream.wire.grammar import GrammarSpec
from support.answer_world import WEATHER, refusal_of

USER = {"role": "user", "content": "hi"}
TOOL = {"name": "weather", "description": "tells it", "input_schema": WEATHER}


def ask(*messages, is_to_answer=True, **fields):
    return ask_of(CountTokensRequest(model="m", messages=list(messages), **fields), is_to_answer=is_to_answer)


def text(words, **more):
    return {"type": "text", "text": words, **more}


def use(id_="t1", name="weather", **arguments):
    return {"type": "tool_use", "id": id_, "name": name, "input": arguments}


def result(id_="t1", content="sunny", **more):
    return {"type": "tool_result", "tool_use_id": id_, "content": content, **more}


def test_strings_and_blocks_say_the_same():
    blocks = {"role": "user", "content": [text("h", cache_control={"type": "ephemeral"}), text("i", citations=None)]}
    assert ask(blocks).messages == ask(USER).messages == [{"role": "user", "content": "hi"}]


def test_instructions_come_first():
    wanted = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
    assert ask(USER, system="be brief").messages == wanted
    assert ask(USER, system=[text("be "), text("brief")]).messages == wanted
    assert ask({"role": "system", "content": "be brief"}, USER).messages == wanted
    for nothing in (None, "", []):
        assert ask(USER, system=nothing).messages == wanted[1:]


def test_a_conversation_with_reasoning_calls_and_results():
    blocks = [
        {"type": "thinking", "thinking": "I should ", "signature": "s"},
        {"type": "redacted_thinking", "data": "zzz"},
        {"type": "thinking", "thinking": "look", "signature": ""},
        text("Looking."),
        use(city="Paris", days=2),
        use("t2", city="Rome"),
    ]
    results = [
        result(content=[text("sun"), text("ny")]),
        result("t2", "rain", is_error=True),
        text("And "),
        text("now?"),
    ]
    found = ask(USER, {"role": "assistant", "content": blocks}, {"role": "user", "content": results}, tools=[TOOL])
    assert found.messages[1:] == [
        {
            "role": "assistant",
            "content": "Looking.",
            "reasoning_content": "I should look",
            "tool_calls": [
                {"id": id_, "type": "function", "function": {"name": "weather", "arguments": arguments}}
                for id_, arguments in (("t1", {"city": "Paris", "days": 2}), ("t2", {"city": "Rome"}))
            ],
        },
        {"role": "tool", "content": "sunny", "tool_call_id": "t1"},
        {"role": "tool", "content": "rain", "tool_call_id": "t2"},
        {"role": "user", "content": "And now?"},
    ]


def test_text_before_results_stays_before_them():
    call = {"role": "assistant", "content": [use()]}
    turn = {"role": "user", "content": [text("Here:"), {"type": "tool_result", "tool_use_id": "t1"}]}
    assert [m["content"] for m in ask(call, turn).messages[1:]] == ["Here:", ""]


def test_tools():
    tools = [TOOL, {"type": "custom", "name": "g", "input_schema": {}, "strict": True, "eager_input_streaming": True}]
    found = ask(USER, tools=tools).tools.tools
    assert [(tool.name, tool.description, tool.is_strict) for tool in found] == [
        ("weather", "tells it", False),
        ("g", None, True),
    ]
    assert found[0].parameters == WEATHER


@pytest.mark.parametrize(
    ("choice", "wanted", "is_parallel"),
    [
        (None, ToolChoice("auto"), True),
        ({"type": "auto"}, ToolChoice("auto"), True),
        ({"type": "any"}, ToolChoice("required"), True),
        ({"type": "none"}, ToolChoice("none"), True),
        ({"type": "tool", "name": "weather"}, ToolChoice("named", "weather"), True),
        ({"type": "any", "disable_parallel_tool_use": True}, ToolChoice("required"), False),
        ({"type": "auto", "disable_parallel_tool_use": False}, ToolChoice("auto"), True),
    ],
)
def test_choices(choice, wanted, is_parallel):
    found = ask(USER, tools=[TOOL], tool_choice=choice)
    assert (found.tool_choice, found.parallel_tool_calls) == (wanted, is_parallel)


def test_without_tools_nothing_is_called():
    assert ask(USER).tool_choice == ToolChoice("none")
    assert ask(USER, tool_choice={"type": "auto"}).tool_choice == ToolChoice("none")


@pytest.mark.parametrize(
    ("thinking", "wanted"),
    [
        (None, {}),
        ({"type": "enabled", "budget_tokens": 1024}, {"thinking_mode": "enabled"}),
        ({"type": "disabled"}, {"thinking_mode": "disabled"}),
        ({"type": "adaptive", "display": "summarized"}, {"thinking_mode": "adaptive"}),
    ],
)
def test_thinking(thinking, wanted):
    assert ask(USER, thinking=thinking).template_kwargs == wanted


def test_a_last_message_of_the_assistant_is_counted_but_not_continued():
    assistant = {"role": "assistant", "content": "The best answer is ("}
    error = refusal_of(ask, USER, assistant)
    assert type(error) is UnsupportedFeature
    assert "messages[1].role='assistant'" in str(error)
    assert not ask(USER, assistant, is_to_answer=False).add_generation_prompt
    assert ask(USER, is_to_answer=False).add_generation_prompt


def test_the_form_of_the_text():
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    form = {"type": "json_schema", "schema": schema}
    assert grammar_of({"format": form}) == GrammarSpec.json_schema(schema)
    assert grammar_of(None) is grammar_of({"effort": "high"}) is grammar_of({"format": None}) is None
    for bad, param in (
        ({"format": {"type": "regex"}}, "output_config.format.type"),
        ({"format": {"type": "json_schema"}}, "output_config.format.schema"),
        ({"format": 5}, "output_config.format"),
        ({"other": 1}, "output_config.other"),
        (5, "output_config"),
        ({"format": form | {"schema": {"x-guidance": {}}}}, "output_config"),
        ({"format": form | {"schema": {"enum": ["x" * 10**6]}}}, "output_config"),
    ):
        assert refusal_of(grammar_of, bad).param == param


BAD_MESSAGES = [
    ([], "messages", RequestError),
    ([5], "messages[0]", RequestError),
    ([{"role": "user"}], "messages[0].content", RequestError),
    ([{"role": "bot", "content": "x"}], "messages[0].role", RequestError),
    ([{"role": "user", "content": []}], "messages[0]", RequestError),
    ([{"role": "user", "content": 5}], "messages[0].content", RequestError),
    ([{"role": "user", "content": "x", "name": "y"}], "messages[0].name", RequestError),
    ([{"role": "user", "content": ["x"]}], "messages[0].content[0]", RequestError),
    ([{"role": "user", "content": [{"text": "x"}]}], "messages[0].content[0].type", UnsupportedFeature),
    ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text", RequestError),
    ([{"role": "user", "content": [{"type": "image"}]}], "messages[0].content[0].type", UnsupportedFeature),
    ([{"role": "user", "content": [text("x", citations=[1])]}], "messages[0].content[0].citations", UnsupportedFeature),
    ([{"role": "user", "content": [use()]}], "messages[0].content[0].type", UnsupportedFeature),
    ([{"role": "assistant", "content": [result()]}], "messages[0].content[0].type", UnsupportedFeature),
    ([{"role": "user", "content": [text("x"), result()]}], "messages[0].content[1]", RequestError),
    (
        [{"role": "assistant", "content": [use()]}, {"role": "user", "content": [result("t9")]}],
        "messages[1].content[0].tool_use_id",
        RequestError,
    ),
    (
        [{"role": "assistant", "content": [use(), use("t2", "a<b")]}, USER],
        "messages[0].tool_use[1].function.name",
        RequestError,
    ),
    (
        [{"role": "user", "content": [result(content=[{"type": "image"}])]}],
        "messages[0].content[0].content[0].type",
        UnsupportedFeature,
    ),
    ([USER] * (MAX_MESSAGES + 1), "messages", RequestError),
    ([{"role": "user", "content": [text("x")] * (MAX_MESSAGES + 1)}], "messages", RequestError),
]


@pytest.mark.parametrize(("messages", "param", "kind"), BAD_MESSAGES)
def test_messages_that_are_not_accepted_are_named(messages, param, kind):
    error = refusal_of(ask, *messages)
    assert (type(error), error.param) == (kind, param)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"system": [{"type": "image"}]}, "system[0].type"),
        ({"tools": [5]}, "tools[0]"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools[0].type"),
        ({"tools": [{"name": "f"}]}, "tools[0].input_schema"),
        ({"tools": [TOOL | {"name": "a b"}]}, "tools[0].name"),
        ({"tools": [TOOL | {"input_schema": {"type": "array"}}]}, "tools[0].input_schema.type"),
        ({"tools": [TOOL | {"defer_loading": True}]}, "tools[0].defer_loading"),
        ({"tools": [TOOL] * 1000}, "tools"),
        ({"tools": [TOOL], "tool_choice": {"type": "all"}}, "tool_choice.type"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"tools": [TOOL], "tool_choice": {"type": "any", "name": "weather"}}, "tool_choice.name"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "g"}}, "tool_choice.name"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"thinking": {"type": "between_tools"}}, "thinking.type"),
        ({"thinking": {"type": "enabled", "display": "omitted"}}, "thinking.display"),
    ],
)
def test_fields_that_are_not_accepted_are_named(fields, param):
    assert refusal_of(ask, USER, **fields).param == param
