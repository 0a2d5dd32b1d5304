"""Fields of a chat request in the shape that every protocol shares."""

from __future__ import annotations

import pytest

from slipstream.base.errors import RequestError, UnsupportedFeature
from slipstream.server.protocol.chat_input import ask_of, chat_sampling, constraint_field
from slipstream.server.protocol.chat_requests import ChatRequest
from support.http_world import USER

TOOLS = [{"type": "function", "function": {"name": "f"}}]
VARIABLES = frozenset({"messages", "tools"})


def chat(**fields) -> ChatRequest:
    return ChatRequest.model_validate({"messages": USER} | fields)


def test_a_conversation_with_tools():
    ask = ask_of(chat(tools=TOOLS, parallel_tool_calls=False, chat_template_kwargs={"a": 1}), VARIABLES | {"a"})
    assert ask.messages == USER
    assert (ask.tools.names, ask.tool_choice.mode, ask.parallel_tool_calls) == (("f",), "auto", False)
    assert (ask.template_kwargs, ask.add_generation_prompt) == ({"a": 1}, True)
    assert ask_of(chat(), VARIABLES).tool_choice.mode == "none"


def test_variables_are_those_that_the_template_reads():
    with pytest.raises(UnsupportedFeature, match=r"kwargs\.foo: .*does not read it.*: a, enable_thinking, t") as caught:
        ask_of(chat(chat_template_kwargs={"foo": True}), frozenset({"messages", "tools", "a"}) | {"thinking_mode"})
    assert caught.value.param == "chat_template_kwargs"


def test_an_effort_is_for_templates_that_read_it():
    effort = chat(reasoning_effort="high")
    assert ask_of(effort, VARIABLES | {"reasoning_effort"}).template_kwargs == {"reasoning_effort": "high"}
    with pytest.raises(UnsupportedFeature, match="does not read it"):
        ask_of(effort, VARIABLES)
    both = chat(reasoning_effort="high", chat_template_kwargs={"reasoning_effort": "low"})
    with pytest.raises(RequestError, match="differ"):
        ask_of(both, VARIABLES | {"reasoning_effort"})


@pytest.mark.parametrize(
    ("fields", "logprobs"),
    [({}, None), ({"logprobs": True}, 0), ({"logprobs": True, "top_logprobs": 3}, 3), ({"top_logprobs": 0}, None)],
)
def test_log_probabilities(fields, logprobs):
    assert chat_sampling(chat(**fields)).logprobs == logprobs


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"top_logprobs": 1}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": -1}, "top_logprobs"),
        ({"prompt_logprobs": 0, "stream": True}, "prompt_logprobs"),
        ({"max_tokens": 1, "max_completion_tokens": 2}, "max_completion_tokens"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
    ],
)
def test_contradictions_are_named(fields, param):
    with pytest.raises(RequestError) as caught:
        chat_sampling(chat(**fields))
    assert caught.value.param == param
    assert param in str(caught.value)


def test_errors_about_the_constraint_have_a_field():
    constrained = chat(response_format={"type": "json_object"})
    assert constraint_field(constrained, ask_of(constrained, VARIABLES)) == "response_format"
    forced = chat(tools=TOOLS, tool_choice="required")
    assert constraint_field(forced, ask_of(forced, VARIABLES)) == "tools"
    assert constraint_field(chat(), ask_of(chat(), VARIABLES)) is None
