"""Errors about translated messages, tools and choices speak of what the caller sent."""

from __future__ import annotations

from slipstream.base.errors import RequestError, UnsupportedFeature
from slipstream.server.protocol.translated import check_choice, check_messages, check_tools, naming, renamed
from slipstream.text.tools.schema import ToolChoice, ToolSet
from support.answer_world import refusal_of

TOOL = {"name": "f", "parameters": {"type": "object", "properties": {}}}


def test_good_messages_tools_and_choices_pass():
    message = {"role": "user", "content": "hi"}
    assert check_messages([("here", message)], {}) == [message]
    tools = check_tools([TOOL], {})
    assert tools.names == ("f",)
    assert check_choice("auto", tools) == ToolChoice("auto")


def test_a_message_is_named_by_where_it_came_from():
    messages = [("system", {"role": "system", "content": "x"}), ("input[7]", {"role": "tool", "content": "y"})]
    error = refusal_of(check_messages, messages, {"tool_calls": "calls"})
    assert error.param == "input[7]"
    assert str(error) == "input[7] is a tool's result, and no message before it has calls"


def test_an_error_about_no_single_message_stays():
    assert refusal_of(check_messages, [], {}).param == "messages"


def test_tools_are_named_without_their_wrapping():
    error = refusal_of(check_tools, [TOOL, TOOL | {"name": "a b"}], {})
    assert error.param == "tools[1].name"
    assert ".function" not in str(error)
    error = refusal_of(check_tools, [TOOL | {"parameters": {"type": "array"}}], {"].parameters": "].input_schema"})
    assert error.param == "tools[0].input_schema.type"
    assert str(error).startswith("tools[0].input_schema.type='array' is not allowed")


def test_choices_are_named_without_their_wrapping():
    tools = check_tools([TOOL], {})
    error = refusal_of(check_choice, {"type": "function", "function": {"name": "g"}}, tools)
    assert error.param == "tool_choice.name"
    assert refusal_of(check_choice, "required", ToolSet()).param == "tool_choice"


def test_a_field_gets_the_name_that_the_caller_knows():
    def refuse(param):
        with naming({"stop": "stop_sequences"}):
            raise UnsupportedFeature("stop=1: give another stop", param=param, code="c")

    error = refusal_of(refuse, "stop")
    assert (type(error), error.param, error.code) == (UnsupportedFeature, "stop_sequences", "c")
    assert str(error) == "stop_sequences=1: give another stop_sequences"
    for param in ("temperature", None):
        error = refusal_of(refuse, param)
        assert (str(error), error.param) == ("stop=1: give another stop", param)


def test_class_and_code_are_kept():
    error = renamed(UnsupportedFeature("a is no b", param="a", code="c"), {"a": "x", "b": "y"})
    assert (type(error), str(error), error.param, error.code) == (UnsupportedFeature, "x is no y", "x", "c")
    assert renamed(RequestError("a"), {"a": "x"}).param is None
