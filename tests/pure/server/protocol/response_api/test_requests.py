"""The fields of /v1/responses: types, limits, tables."""

from __future__ import annotations

import typing

import pytest
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

from slipstream.server.protocol.endpoints import RESPONSES
from slipstream.server.protocol.parse import parse_fields
from slipstream.server.protocol.response_api.requests import ResponseRequest
from support.answer_world import refusal_of

# Parameters of the openai package that no one has a reason to send to this server; they are unknown here.
ELSEWHERE = {"access_programs", "background_options", "image"}


def known():
    listed = {field.name for field in (*RESPONSES.ignored, *RESPONSES.refused)}
    return listed | set(ResponseRequest.model_fields)


def test_the_parameters_of_the_openai_package_are_known():
    sent = set(typing.get_type_hints(ResponseCreateParamsStreaming))
    assert len(sent) > 20
    assert sent - known() <= ELSEWHERE


def test_defaults():
    asked = parse_fields(RESPONSES, ResponseRequest, {"input": "hi", "store": True, "user": "x", "background": False})
    assert (asked.model, asked.max_output_tokens, asked.seed, asked.stream) == (None, None, None, False)
    assert (asked.temperature, asked.top_p, asked.top_k) == (1.0, 1.0, 0)
    assert (asked.tools, asked.include, asked.metadata, asked.parallel_tool_calls) == ([], [], {}, True)


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"input": None}, "input"),
        ({"input": 5}, "input"),
        ({"text": "json"}, "text"),
        ({"reasoning": "high"}, "reasoning"),
        ({"tool_choice": 5}, "tool_choice"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_output_tokens": "5"}, "max_output_tokens"),
        ({"instructions": ["x"]}, "instructions"),
        ({"metadata": {"a": 1}}, "metadata"),
        ({"metadata": {str(i): "" for i in range(17)}}, "metadata"),
        ({"parallel_tool_calls": "yes"}, "parallel_tool_calls"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "c"}, "conversation"),
        ({"background": True}, "background"),
        ({"truncation": "auto"}, "truncation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"max_tokens": 3}, "max_tokens"),
    ],
)
def test_what_is_not_served_is_named(change, param):
    error = refusal_of(parse_fields, RESPONSES, ResponseRequest, {"input": "hi"} | change)
    assert error.param == param
    assert param in str(error)
