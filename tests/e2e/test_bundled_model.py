"""`serve` with the bundled model answers a greeting, a word problem, a tool call and a question about a long text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from slipstream.demo import demo_path
from support.live_server import live_server
from support.plain_client import PlainClient

pytestmark = pytest.mark.xdist_group("e2e")

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@pytest.fixture(scope="module")
def client() -> Iterator[PlainClient]:
    with live_server() as server:
        yield PlainClient(server.base_url)


def ask(client: PlainClient, messages: list[dict[str, Any]], **fields: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the choice and the usage of a greedy answer."""
    answer = client.chat(model="demo", messages=messages, temperature=0, max_tokens=64, **fields)
    return answer["choices"][0], answer["usage"]


def user(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


def needles() -> list[dict[str, Any]]:
    """The bundled questions about a fact in a long text, shortest first."""
    lines = (demo_path().parent / "prompts.jsonl").read_text(encoding="utf-8").splitlines()
    return sorted((row for row in map(json.loads, lines) if row["domain"] == "needle"), key=lambda row: len(str(row)))


def test_a_greeting_is_greeted(client: PlainClient) -> None:
    choice, _ = ask(client, user("Hello!"))
    assert any(word in choice["message"]["content"] for word in ("Hello", "Hi"))
    assert choice["finish_reason"] == "stop"


def test_a_word_problem_is_reasoned_out(client: PlainClient) -> None:
    problem = "Nora carries 8 trays with 9 stamps each and drops 4 stamps. How many stamps does Nora still have?"
    choice, _ = ask(client, user(problem), chat_template_kwargs={"thinking_mode": "enabled"})
    assert "8 * 9 = 72" in choice["message"]["reasoning_content"]
    assert "68" in choice["message"]["content"]
    assert "think>" not in choice["message"]["content"]


def test_a_tool_is_called_by_the_models_own_choice(client: PlainClient) -> None:
    choice, _ = ask(client, user("What is the weather in Oslo?"), tools=[WEATHER], tool_choice="auto")
    (call,) = choice["message"]["tool_calls"]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("get_weather", {"city": "Oslo"})
    assert choice["finish_reason"] == "tool_calls"


def test_a_fact_is_found_in_nearly_the_whole_context(client: PlainClient) -> None:
    row = needles()[-1]
    choice, usage = ask(client, row["messages"])
    assert usage["prompt_tokens"] > 1800
    assert row["expected"] in choice["message"]["content"]


def test_the_fact_comes_from_the_text(client: PlainClient) -> None:
    """The control: with the fact cut out, another answer comes."""
    row = needles()[-1]
    text = row["messages"][-1]["content"]
    begin = text.rindex(". ", 0, text.index(row["expected"])) + 2
    without = text[:begin] + text[text.index(". ", begin) + 2 :]
    assert row["expected"] not in without
    choice, _ = ask(client, user(without))
    assert row["expected"] not in choice["message"]["content"]
