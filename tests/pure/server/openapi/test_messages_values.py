"""Values of /v1/messages: schema and parser agree on every example."""

from __future__ import annotations

import pytest

from slipstream.server.openapi.messages_values import MESSAGES_VALUES
from slipstream.server.protocol.messages.input import ask_of, grammar_of
from slipstream.server.protocol.messages.requests import CountTokensRequest
from support.json_schema import is_valid, parses

USER = {"role": "user", "content": "x"}
USE = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
CALLED = {"role": "assistant", "content": [USE]}
TOOL = {"name": "f", "input_schema": {"type": "object", "properties": {}}}


def result(**fields):
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", **fields}]}


def texts(*blocks):
    return [{"role": "user", "content": list(blocks)}]


TEXT = {"type": "text", "text": "x"}
EXAMPLES = {
    "messages": [
        [USER],
        [],
        ["x"],
        [{"role": "user"}],
        [{"role": "nobody", "content": "x"}],
        [{"role": "tool", "content": "x"}],
        [{"role": "system", "content": "x"}, USER],
        [USER | {"more": 1}],
        [{"role": "user", "content": 5}],
        [{"role": "user", "content": []}],
        texts(TEXT),
        texts(TEXT | {"cache_control": {"type": "ephemeral"}}),
        texts(TEXT | {"citations": None}),
        texts(TEXT | {"citations": [1]}),
        texts(TEXT | {"more": 1}),
        texts({"type": "text"}),
        texts({"type": "text", "text": 5}),
        texts({"text": "x"}),
        texts({"type": "image", "source": {}}),
        texts({"type": "thinking", "thinking": "x"}),
        texts(USE),
        [USER, CALLED, result(content="x")],
        [USER, CALLED, result()],
        [USER, CALLED, result(content=[TEXT])],
        [USER, CALLED, result(content=[{"type": "image"}])],
        [USER, CALLED, result(is_error=True)],
        [USER, {"role": "assistant", "content": [USE | {"input": "x"}]}],
        [USER, {"role": "assistant", "content": [USE | {"id": None}]}],
        [USER, {"role": "assistant", "content": [{"type": "thinking", "thinking": "x", "signature": "y"}, TEXT]}],
        [USER, {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}]}],
        [USER, {"role": "assistant", "content": [{"type": "thinking"}]}],
    ],
    "system": ["x", "", [TEXT], [], [{"type": "image"}], 5, {}],
    "tools": [
        [],
        [TOOL],
        [TOOL | {"type": "custom", "description": "d", "strict": True}],
        [TOOL | {"type": "web_search"}],
        [TOOL | {"name": "a b"}],
        [TOOL | {"description": 5}],
        [TOOL | {"defer_loading": False}],
        [TOOL | {"defer_loading": True}],
        [TOOL | {"more": 1}],
        [{"name": "f"}],
        [{"name": "f", "input_schema": {"type": "array"}}],
        [5],
    ],
    "tool_choice": [
        {"type": "auto"},
        {"type": "any", "disable_parallel_tool_use": True},
        {"type": "none"},
        {"type": "tool", "name": "f"},
        {"type": "tool"},
        {"type": "auto", "name": "f"},
        {"type": "auto", "disable_parallel_tool_use": 1},
        {"type": "other"},
        {},
        "auto",
    ],
    "thinking": [
        {"type": "enabled", "budget_tokens": 5},
        {"type": "disabled"},
        {"type": "adaptive"},
        {"type": "other"},
        {"type": "enabled", "display": "summarized"},
        {"type": "enabled", "display": "omitted"},
        {},
        "enabled",
    ],
    "output_config": [
        {},
        {"effort": "high"},
        {"format": {"type": "json_schema", "schema": {"type": "object"}}},
        {"format": {"type": "json_schema"}},
        {"format": {"type": "json_object"}},
        {"format": {"type": "json_schema", "schema": True}},
        {"format": None},
        {"more": 1},
        "x",
    ],
}


def parse(name):
    def of(value):
        base = {"model": "tiny", "messages": [USER], "tools": [TOOL]}
        request = CountTokensRequest(**(base | {name: value}))
        return grammar_of(request.output_config) if name == "output_config" else ask_of(request, is_to_answer=False)

    return of


def test_every_value_has_examples():
    assert set(EXAMPLES) == set(MESSAGES_VALUES)


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in EXAMPLES.items() for value in values])
def test_schema_and_parser_agree(name, value):
    assert is_valid(value, MESSAGES_VALUES[name]) == parses(parse(name), value)
