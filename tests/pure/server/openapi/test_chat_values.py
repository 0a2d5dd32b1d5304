"""The shapes that request models call any: schema and parser agree on every example."""

from __future__ import annotations

import pytest

from slipstream.server.openapi.chat_values import (
    MESSAGES,
    PROMPT,
    RESPONSE_FORMAT,
    STRUCTURED_OUTPUTS,
    TOOL_CHOICE,
    TOOLS,
)
from slipstream.server.protocol.parse import parse_prompts
from slipstream.server.protocol.requests import SamplingFields
from slipstream.server.protocol.structured import grammar_of
from slipstream.text.messages import parse_messages
from slipstream.text.tools.schema import parse_tool_choice, parse_tools
from support.json_schema import is_valid, parses

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}


def check(schema, parse, value):
    assert is_valid(value, schema) == parses(parse, value), value


USER = {"role": "user", "content": "x"}
CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CALLED = [{"role": "assistant", "tool_calls": [CALL]}]


@pytest.mark.parametrize(
    "value",
    [
        [USER],
        [],
        None,
        "x",
        [None],
        [{"role": "user"}],
        [{"content": "x"}],
        [{"role": "nobody", "content": "x"}],
        [{"role": "user", "content": None}],
        [{"role": "user", "content": 5}],
        [{"role": "user", "content": []}],
        [{"role": "user", "content": [{"type": "text", "text": "x"}]}],
        [{"role": "user", "content": [{"type": "text"}]}],
        [{"role": "user", "content": [{"type": "text", "text": "x", "more": 1}]}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
        [{"role": "user", "content": ["x"]}],
        [USER | {"surprise": 1}],
        [USER | {"name": "x"}, USER | {"name": None}],
        [USER | {"name": 5}],
        [USER | {"audio": None}],
        [USER | {"audio": {"id": "x"}}],
        [USER | {"tool_calls": []}],
        [USER | {"tool_call_id": "x"}],
        CALLED,
        [*CALLED, {"role": "tool", "content": "1", "tool_call_id": "a"}],
        [*CALLED, {"role": "tool", "content": None, "tool_call_id": "a"}],
        [*CALLED, {"role": "tool", "content": "1", "tool_call_id": 5}],
        [CALLED[0] | {"content": None}],
        [CALLED[0] | {"role": "user"}],
        [CALLED[0] | {"tool_calls": "x"}],
        [{"role": "assistant", "content": None, "tool_calls": []}],
        [{"role": "assistant", "content": "x", "tool_calls": [CALL | {"more": 1}]}],
        [{"role": "assistant", "content": "x", "tool_calls": [CALL | {"type": "other"}]}],
        [{"role": "assistant", "content": "x", "tool_calls": [CALL | {"type": None}]}],
        [{"role": "assistant", "content": "x", "tool_calls": [CALL | {"id": 5}]}],
        [{"role": "assistant", "content": "x", "tool_calls": [CALL | {"index": 0}]}],
        [{"role": "assistant", "content": "x", "tool_calls": [{"function": {"name": "f"}}]}],
        [{"role": "assistant", "content": "x", "tool_calls": [{"function": {"arguments": "{}"}}]}],
        [{"role": "assistant", "content": "x", "tool_calls": [{"function": {"name": "f", "arguments": []}}]}],
        [{"role": "assistant", "content": "x", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}],
    ],
)
def test_messages(value):
    check(MESSAGES, parse_messages, value)


@pytest.mark.parametrize(
    "value", ["x", ["x"], [1, 2], [[1], [2, 3]], [], [1, "x"], ["x", 1], [1.5], [True], None, 5, {}, [None]]
)
def test_prompts(value):
    check(PROMPT, lambda given: parse_prompts(given, max_prompts=8, max_prompt_tokens=8), value)


@pytest.mark.parametrize(
    "value",
    [
        [],
        [TOOL],
        "x",
        [{}],
        [{"type": "function"}],
        [{"type": "retrieval"}],
        [TOOL | {"more": 1}],
        [{"type": "function", "function": {"name": "a b"}}],
        [{"type": "function", "function": {"name": "a" * 65}}],
        [{"type": "function", "function": {"name": "f", "strict": True, "description": "d", "parameters": None}}],
        [{"type": "function", "function": {"name": "f", "strict": 1}}],
        [{"type": "function", "function": {"name": "f", "parameters": []}}],
        [{"type": "function", "function": {"name": "f", "parameters": {"type": "array"}}}],
        [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": []}}}],
        [{"type": "function", "function": {"name": "f", "more": 1}}],
    ],
)
def test_tools(value):
    check(TOOLS, parse_tools, value)


@pytest.mark.parametrize(
    "value",
    [
        "none",
        "auto",
        "required",
        "any",
        5,
        {"type": "function", "function": {"name": "f"}},
        {"type": "function", "function": {}},
        {"type": "function", "function": {"name": 5}},
        {"type": "function", "name": "f"},
        {"type": "other"},
    ],
)
def test_tool_choices(value):
    check(TOOL_CHOICE, lambda given: parse_tool_choice(given, parse_tools([TOOL])), value)


SCHEMA = {"type": "object"}


@pytest.mark.parametrize("name", ["a", "", "/a", "a/", "a<b", "a>b", "a\nb", "a\rb", "a" * 256, "a" * 257, "ä\u2028"])
def test_names_of_parameters(name):
    value = [{"type": "function", "function": {"name": "f", "parameters": {"properties": {name: {}}}}}]
    check(TOOLS, parse_tools, value)


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"type": "text"},
        {"type": "json_object"},
        {"type": "other"},
        {"type": "text", "json_schema": None},
        {"type": "text", "more": 1},
        {"type": "json_schema"},
        {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}},
        {"type": "json_schema", "json_schema": {"name": "x", "schema": True, "strict": True, "description": "d"}},
        {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": 1}},
        {"type": "json_schema", "json_schema": {"name": "", "schema": SCHEMA}},
        {"type": "json_schema", "json_schema": {"schema": SCHEMA}},
        {"type": "json_schema", "json_schema": {"name": "x"}},
        {"type": "json_schema", "json_schema": {"name": "x", "schema": "y"}},
        {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "more": 1}},
        {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}, "more": 1},
    ],
)
def test_response_formats(value):
    check(RESPONSE_FORMAT, lambda given: grammar_of(SamplingFields(response_format=given)), value)


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"json": SCHEMA},
        {"json": '{"type": "object"}'},
        {"json": 5},
        {"regex": "a+"},
        {"regex": 5},
        {"choice": ["a"]},
        {"choice": []},
        {"choice": "a"},
        {"grammar": 'start: "x"'},
        {"json_object": True},
        {"json_object": "x"},
        {"regex": "a", "choice": ["a"]},
        {"other": 1},
    ],
)
def test_structured_outputs(value):
    check(STRUCTURED_OUTPUTS, lambda given: grammar_of(SamplingFields(structured_outputs=given)), value)
