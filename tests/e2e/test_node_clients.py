"""The npm packages openai, ai and @anthropic-ai/sdk against the server: they get what the Python client gets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from support.live_server import LiveServer, live_server
from support.outside import run_node
from support.processes import wait_until

pytestmark = pytest.mark.xdist_group("clients")

ABORTED = 'vllm:request_success_total{engine="0",finished_reason="abort",model_name="demo"}'
# The same question, limits and tools as in tests/clients/node.
QUESTION = [{"role": "user", "content": "What is a river? Answer in one sentence."}]
ASKED: dict[str, Any] = {"model": "demo", "messages": QUESTION, "max_tokens": 40, "temperature": 0}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather in a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with live_server("demo", "--max-num-seqs", "8") as one:
        yield one


@pytest.fixture(scope="module")
def python(server: LiveServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="unused", max_retries=0) as one:
        yield one


def calls_of(python: openai.OpenAI) -> list[list[Any]]:
    answer = python.chat.completions.create(**{**ASKED, "max_tokens": 200}, tools=[WEATHER], tool_choice="required")
    calls = answer.choices[0].message.tool_calls or []
    assert answer.choices[0].finish_reason == "tool_calls"
    return [[call.function.name, json.loads(call.function.arguments)] for call in calls]


def test_openai_for_node(server: LiveServer, python: openai.OpenAI) -> None:
    num_aborted = server.metric(ABORTED)
    found = run_node("openai_client.mjs", server.base_url, "demo")
    answer = python.chat.completions.create(**ASKED)
    text, usage = answer.choices[0].message.content, answer.usage
    assert usage is not None
    for way in ("chat", "stream"):
        assert (found[way]["text"], found[way]["finish_reason"]) == (text, answer.choices[0].finish_reason)
        assert found[way]["usage"]["total_tokens"] == usage.total_tokens
    assert found["models"] == ["demo"]
    expected = {"calls": calls_of(python), "finish_reason": "tool_calls"}
    assert expected["calls"]
    assert found["tools"] == found["streamed_tools"] == expected
    # Chunks that had arrived together with the second one may still be handed out; the server says that it stopped.
    assert 2 <= found["abort"]["count"] < 300
    assert wait_until(lambda: server.metric(ABORTED) > num_aborted), "the request whose stream was left runs on"
    assert (found["refused"]["status"], found["refused"]["param"]) == (400, "temperature")
    assert found["refused"]["name"] == "BadRequestError"


def test_ai_sdk(server: LiveServer, python: openai.OpenAI) -> None:
    found = run_node("ai_sdk.mjs", server.base_url, "demo")
    answer = python.chat.completions.create(**ASKED)
    usage = answer.usage
    assert usage is not None
    expected = {
        "text": answer.choices[0].message.content,
        "finish_reason": answer.choices[0].finish_reason,
        "tokens": [usage.prompt_tokens, usage.completion_tokens],
    }
    assert found["text"] == found["streamed"] == expected
    thinking = (
        python.chat.completions.create(
            **{**ASKED, "max_tokens": 60}, extra_body={"chat_template_kwargs": {"thinking_mode": "enabled"}}
        )
        .choices[0]
        .message
    )
    reasoning = (thinking.model_extra or {})["reasoning_content"]
    assert reasoning
    assert found["reasoning"] == {"text": thinking.content, "reasoning": reasoning, "streamed": reasoning}
    assert found["tools"] == found["streamed_tools"] == {"calls": calls_of(python), "finish_reason": "tool-calls"}
    assert found["object"]["animal"] in ("cat", "dog")
    assert 0 <= found["object"]["legs"] <= 9


def test_anthropic_for_node(server: LiveServer, python: openai.OpenAI) -> None:
    found = run_node("anthropic_client.mjs", server.base_url, "demo")
    answer = python.chat.completions.create(**ASKED)
    usage = answer.usage
    assert usage is not None
    for way in ("message", "stream"):
        assert found[way]["text"] == answer.choices[0].message.content
        assert found[way]["tokens"][1] == usage.completion_tokens
    assert found["count"] == usage.prompt_tokens
