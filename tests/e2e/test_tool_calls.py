"""Tools and reasoning over HTTP, as the openai package reads them, from the bundled model behind a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jsonschema
import openai
import pytest

from support.live_server import live_server

pytestmark = pytest.mark.xdist_group("e2e")

SCHEMAS: dict[str, dict[str, Any]] = {
    "weather": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 12},
            "days": {"type": "integer", "minimum": 1, "maximum": 9},
            "where": {"type": "object", "properties": {"lat": {"enum": [1, 2]}}, "required": ["lat"]},
        },
        "required": ["city", "days"],
    },
    "clock": {"type": "object", "properties": {"zone": {"enum": ["UTC", "CET"]}}, "required": ["zone"]},
}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": schema}} for name, schema in SCHEMAS.items()]
QUESTION = [{"role": "user", "content": "How is the weather in Rome?"}]
NAMED = {"type": "function", "function": {"name": "weather"}}


@pytest.fixture(scope="module")
def client() -> Iterator[openai.OpenAI]:
    with (
        live_server("demo", "--max-num-seqs", "8") as server,
        openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="unused", max_retries=0) as one,
    ):
        yield one


def ask(client: openai.OpenAI, mode: str | None = None, **options: Any) -> Any:
    extra = {} if mode is None else {"chat_template_kwargs": {"thinking_mode": mode}}
    return client.chat.completions.create(
        **{"model": "demo", "messages": QUESTION, "max_tokens": 400, "extra_body": extra, **options}
    )


def check(calls: list[Any]) -> None:
    assert calls
    for call in calls:
        jsonschema.validate(json.loads(call.function.arguments), SCHEMAS[call.function.name])


@pytest.mark.parametrize("choice", ["required", NAMED], ids=["required", "named"])
def test_forced_calls_are_always_valid(client: openai.OpenAI, choice: Any) -> None:
    def one(seed: int) -> Any:
        mode = (None, "enabled", "disabled")[seed % 3]
        return ask(client, mode, tools=TOOLS, tool_choice=choice, parallel_tool_calls=False, temperature=1.2, seed=seed)

    with ThreadPoolExecutor(6) as threads:
        answers = list(threads.map(one, range(12)))
    for answer in answers:
        (told,) = answer.choices
        check(told.message.tool_calls)
        assert (told.finish_reason, told.message.content) == ("tool_calls", None)
        if choice is NAMED:
            assert [call.function.name for call in told.message.tool_calls] == ["weather"]


def test_a_streamed_call_joins_to_the_whole_one(client: openai.OpenAI) -> None:
    options = {"tools": TOOLS, "tool_choice": "required", "temperature": 0, "parallel_tool_calls": False}
    whole = ask(client, "enabled", **options).choices[0]
    calls: dict[int, dict[str, str]] = {}
    reasoning, num_pieces, finish_reason = "", 0, None
    for chunk in ask(client, "enabled", stream=True, **options):
        (choice,) = chunk.choices
        reasoning += getattr(choice.delta, "reasoning_content", None) or ""
        finish_reason = choice.finish_reason or finish_reason
        for piece in choice.delta.tool_calls or ():
            call = calls.setdefault(piece.index, {"id": piece.id, "name": piece.function.name, "arguments": ""})
            call["arguments"] += piece.function.arguments
            num_pieces += 1
    (call,) = calls.values()
    assert (call["name"], call["arguments"]) == (
        whole.message.tool_calls[0].function.name,
        whole.message.tool_calls[0].function.arguments,
    )
    assert call["id"].startswith("call_")
    assert num_pieces > 2, "arguments arrive while they are written"
    assert reasoning == whole.message.reasoning_content
    assert finish_reason == "tool_calls"


def test_the_result_of_a_call_is_answered(client: openai.OpenAI) -> None:
    message = ask(client, tools=TOOLS, tool_choice=NAMED, temperature=0, parallel_tool_calls=False).choices[0].message
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "sunny"}
    history = [*QUESTION, message.model_dump(exclude_none=True), result]
    answer = ask(client, tools=TOOLS, tool_choice="none", messages=history, temperature=0, max_tokens=60)
    assert answer.choices[0].message.content
    assert answer.usage.prompt_tokens_details.cached_tokens > 0


@pytest.mark.parametrize(("mode", "has_reasoning"), [("enabled", True), ("disabled", False), (None, False)])
def test_thinking_modes(client: openai.OpenAI, mode: str | None, has_reasoning: bool) -> None:
    message = ask(client, mode, temperature=0).choices[0].message
    reasoning = getattr(message, "reasoning_content", None)
    assert bool(reasoning) == has_reasoning
    assert "think>" not in message.content + (reasoning or "")
    streamed = {"content": "", "reasoning_content": ""}
    for chunk in ask(client, mode, temperature=0, stream=True):
        for field in streamed:
            streamed[field] += getattr(chunk.choices[0].delta, field, None) or ""
    assert streamed == {"content": message.content, "reasoning_content": reasoning or ""}


def test_what_cannot_be_forced_is_a_400(client: openai.OpenAI) -> None:
    unsupported = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}
    parameters = {"type": "object", "properties": {"x": unsupported}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
    with pytest.raises(openai.BadRequestError, match="uniqueItems") as caught:
        ask(client, tools=tools, tool_choice="required")
    assert caught.value.param == "tools"
    assert ask(client, tools=tools, tool_choice="auto", max_tokens=4).choices
