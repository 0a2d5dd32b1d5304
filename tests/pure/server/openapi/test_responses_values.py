"""Values of /v1/responses: schema and parser agree on every example."""

from __future__ import annotations

import pytest

from slipstream.server.openapi.responses_values import RESPONSES_VALUES
from slipstream.server.protocol.response_api.input import ask_of, grammar_of
from slipstream.server.protocol.response_api.requests import ResponseRequest
from support.json_schema import is_valid, parses

USER = {"role": "user", "content": "x"}
CALL = {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "a", "output": "1"}
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
PART = {"type": "input_text", "text": "x"}


def parts(*content):
    return [{"role": "user", "content": list(content)}]


EXAMPLES = {
    "input": [
        "x",
        [USER],
        [],
        5,
        ["x"],
        [USER | {"type": "message", "id": "m", "status": "completed"}],
        [USER | {"type": None}],
        [USER | {"more": 1}],
        [{"role": "nobody", "content": "x"}],
        [{"role": "user"}],
        [{"role": "user", "content": 5}],
        parts(),
        parts(PART),
        parts({"type": "output_text", "text": "x", "annotations": []}),
        parts({"type": "input_image", "image_url": "x"}),
        parts({"text": "x"}),
        parts({"type": "input_text"}),
        parts(PART | {"more": 1}),
        [USER, CALL, RESULT],
        [USER, CALL, RESULT | {"output": [PART]}],
        [USER, CALL, RESULT | {"output": []}],
        [USER, CALL | {"arguments": {}}],
        [USER, CALL | {"call_id": None}],
        [USER, CALL | {"namespace": "x"}],
        [USER, CALL | {"caller": {"type": "direct"}}],
        [USER, {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "x"}]}],
        [USER, {"type": "reasoning", "summary": []}],
        [USER, {"type": "reasoning", "content": [{"type": "text", "text": "x"}]}],
        [USER, {"type": "item_reference", "id": "x"}],
    ],
    "tools": [
        [],
        [TOOL],
        [TOOL | {"description": "d", "strict": True}],
        [TOOL | {"strict": 1}],
        [TOOL | {"name": "a b"}],
        [TOOL | {"parameters": None}],
        [TOOL | {"parameters": {"type": "array"}}],
        [TOOL | {"more": 1}],
        [{"type": "web_search"}],
        [{"name": "f"}],
        [{"type": "function"}],
        [TOOL | {"defer_loading": True}],
    ],
    "tool_choice": [
        "auto",
        "none",
        "required",
        "any",
        {"type": "function", "name": "f"},
        {"type": "function"},
        {"type": "function", "function": {"name": "f"}},
        {"type": "web_search"},
        5,
    ],
    "text": [
        {},
        {"format": {"type": "text"}},
        {"format": {}},
        {"format": {"type": "json_object"}},
        {"format": {"type": "json_schema", "name": "x", "schema": {"type": "object"}, "strict": True}},
        {"format": {"type": "json_schema", "name": "x"}},
        {"format": {"type": "other"}},
        {"format": {"type": "text", "more": 1}},
        {"verbosity": "medium"},
        {"verbosity": "high"},
        {"more": 1},
        "x",
    ],
    "reasoning": [
        {},
        {"effort": "low", "summary": "auto"},
        {"effort": "none"},
        {"effort": "other"},
        {"effort": 5},
        {"effort": None},
        {"mode": "standard"},
        {"mode": "pro"},
        {"more": 1},
        "low",
    ],
    "include": [[], ["reasoning.encrypted_content"], ["file_search_call.results"], ["x"]],
}


def parse(name):
    def of(value):
        request = ResponseRequest(**({"input": "x", "tools": [TOOL]} | {name: value}))
        return grammar_of(request.text) if name == "text" else ask_of(request)

    return of


def test_every_value_has_examples():
    assert set(EXAMPLES) == set(RESPONSES_VALUES)


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in EXAMPLES.items() for value in values])
def test_schema_and_parser_agree(name, value):
    assert is_valid(value, RESPONSES_VALUES[name]) == parses(parse(name), value)
