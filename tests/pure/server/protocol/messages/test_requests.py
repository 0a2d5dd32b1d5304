"""The fields of the Messages API: types, limits, tables."""

from __future__ import annotations

import pytest

from slipstream.server.protocol.endpoints import COUNT_TOKENS, MESSAGES
from slipstream.server.protocol.messages.requests import CountTokensRequest, MessagesRequest
from slipstream.server.protocol.parse import parse_fields
from support.answer_world import refusal_of

LEAST = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}

# What clients are known to send: the anthropic package's parameters, and those of terminal agents.
SEEN = {
    "model", "messages", "max_tokens", "system", "stop_sequences", "temperature", "top_p", "top_k", "stream", "tools",
    "tool_choice", "thinking", "metadata", "cache_control", "container", "mcp_servers", "service_tier",
    "context_management", "output_config", "output_format", "inference_geo", "speed", "diagnostics",
}  # fmt: skip


def known(endpoint):
    listed = {field.name for field in (*endpoint.ignored, *endpoint.refused)}
    return listed | set(endpoint.accepts.model_fields)


def test_fields_of_clients_in_the_wild_are_known():
    assert SEEN - known(MESSAGES) == set()
    assert known(MESSAGES) - known(COUNT_TOKENS) == {
        "max_tokens", "stop_sequences", "stream", "temperature", "top_p", "top_k"
    }  # fmt: skip


def test_defaults():
    asked = parse_fields(MESSAGES, MessagesRequest, LEAST | {"metadata": {"user_id": "x"}, "system": None})
    assert (asked.temperature, asked.top_p, asked.top_k, asked.stream) == (1.0, 1.0, 0, False)
    assert (asked.stop_sequences, asked.tools, asked.system, asked.tool_choice) == ([], [], None, None)
    for edits in ({}, {"edits": []}, {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}):
        parse_fields(MESSAGES, MessagesRequest, LEAST | {"context_management": edits})
    assert parse_fields(COUNT_TOKENS, CountTokensRequest, {"model": "m", "messages": [1]}).messages == [1]


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"model": None}, "model"),
        ({"messages": None}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"stop_sequences": [""]}, "stop_sequences"),
        ({"stop_sequences": "x"}, "stop_sequences"),
        ({"stop_sequences": ["x"] * 1000}, "stop_sequences"),
        ({"temperature": "1"}, "temperature"),
        ({"stream": 1}, "stream"),
        ({"tools": {}}, "tools"),
        ({"system": 5}, "system"),
        ({"tool_choice": "auto"}, "tool_choice"),
        ({"thinking": "enabled"}, "thinking"),
        ({"output_config": []}, "output_config"),
        ({"mcp_servers": [{}]}, "mcp_servers"),
        ({"container": "c"}, "container"),
        ({"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}, "context_management"),
        ({"n": 2}, "n"),
    ],
)
def test_what_is_not_served_is_named(change, param):
    error = refusal_of(parse_fields, MESSAGES, MessagesRequest, LEAST | change)
    assert error.param == param
    assert param in str(error)
