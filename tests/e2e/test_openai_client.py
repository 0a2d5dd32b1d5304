"""The openai package against the server: what test_clients does not show of its interface."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any, Literal

import openai
import pydantic
import pytest

from support.live_server import LiveServer, live_server
from support.processes import wait_until

pytestmark = pytest.mark.xdist_group("clients")

QUESTION = [{"role": "user", "content": "What is a river? Answer in one sentence."}]
ASKED: dict[str, Any] = {"model": "demo", "messages": QUESTION, "max_tokens": 24, "temperature": 0}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


class Animal(pydantic.BaseModel):
    """What structured answers are read as."""

    kind: Literal["cat", "dog"]
    legs: int = pydantic.Field(ge=0, le=8)
    is_tame: bool


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with live_server("demo", "--max-num-seqs", "2", "--max-queue", "0") as one:
        yield one


def client_of(server: LiveServer, **options: Any) -> openai.OpenAI:
    settings = {"max_retries": 0, "timeout": 60, **options}
    return openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="unused", **settings)


@pytest.fixture(scope="module")
def client(server: LiveServer) -> Iterator[openai.OpenAI]:
    with client_of(server) as one:
        yield one


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["demo"]
    assert client.models.retrieve("demo").id == "demo"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


def test_a_stream_ends_with_its_usage(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(**ASKED)
    chunks = list(client.chat.completions.create(**ASKED, stream=True, stream_options={"include_usage": True}))
    assert [chunk.usage is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert whole.usage is not None
    assert chunks[-1].usage.total_tokens == whole.usage.total_tokens
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == whole.choices[0].message.content


def test_several_answers(client: openai.OpenAI) -> None:
    options = {**ASKED, "temperature": 0.9, "seed": 3, "n": 2}
    answers = client.chat.completions.create(**options).choices
    assert [answer.index for answer in answers] == [0, 1]
    texts: list[str] = ["", ""]
    for chunk in client.chat.completions.create(**options, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == [answer.message.content for answer in answers]
    assert texts[0] != texts[1]
    single = client.chat.completions.create(**{**options, "n": 1, "seed": 4}).choices[0]
    assert single.message.content == texts[1], "answer i of n has the seed plus i"


def test_log_probabilities(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(**ASKED, logprobs=True, top_logprobs=3)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert answer.usage is not None
    assert len(logprobs.content) in (answer.usage.completion_tokens, answer.usage.completion_tokens - 1)
    for token in logprobs.content:
        assert len(token.top_logprobs) == 3
        assert token.logprob == pytest.approx(max(top.logprob for top in token.top_logprobs)), "greedy"
        assert bytes(token.bytes or []).decode(errors="ignore") in token.token
    completion = client.completions.create(model="demo", prompt="The river is", max_tokens=4, logprobs=2, temperature=0)
    found = completion.choices[0].logprobs
    assert found is not None
    assert found.tokens is not None
    assert "".join(found.tokens) == completion.choices[0].text
    assert found.top_logprobs is not None
    assert all(len(top) == 2 for top in found.top_logprobs)


def test_a_call_and_its_result(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {**ASKED, "max_tokens": 200, "tools": [WEATHER]}
    choice = {"type": "function", "function": {"name": "get_weather"}}
    message = client.chat.completions.create(**asked, tool_choice=choice).choices[0].message
    assert message.tool_calls is not None
    [call] = message.tool_calls
    assert call.function.name == "get_weather"
    assert isinstance(json.loads(call.function.arguments)["city"], str)
    result = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
    conversation = [*QUESTION, message.to_dict(), result]
    answer = client.chat.completions.create(**{**asked, "messages": conversation, "max_tokens": 16}, tool_choice="none")
    assert answer.choices[0].message.content
    assert not answer.choices[0].message.tool_calls


def test_structured_answers_are_read_as_a_model(client: openai.OpenAI) -> None:
    asked = {**ASKED, "max_tokens": 300, "temperature": 0.8, "seed": 5}
    parsed = client.chat.completions.parse(**asked, response_format=Animal).choices[0].message.parsed
    assert isinstance(parsed, Animal)
    with client.chat.completions.stream(**asked, response_format=Animal) as stream:
        streamed = stream.get_final_completion().choices[0].message.parsed
    assert streamed == parsed


def test_raw_answers_carry_the_request_id(client: openai.OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(**ASKED)
    assert raw.headers["x-request-id"]
    assert raw.headers["content-type"] == "application/json"
    parsed = raw.parse()
    assert parsed._request_id == raw.headers["x-request-id"]
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**{**ASKED, "temperature": -1})
    assert caught.value.request_id
    assert caught.value.request_id != raw.headers["x-request-id"]
    assert caught.value.param == "temperature"


def hold(client: openai.OpenAI) -> openai.Stream[Any]:
    """Return a stream that occupies the server until it is closed."""
    endless = {**ASKED, "max_tokens": 1900, "stream": True, "extra_body": {"ignore_eos": True}}
    stream = client.chat.completions.create(**endless)
    next(iter(stream))
    return stream


def test_a_full_server_is_tried_again(server: LiveServer, client: openai.OpenAI) -> None:
    """The package waits as Retry-After says, and gets its answer once there is room."""
    streams = [hold(client), hold(client)]
    try:
        with pytest.raises(openai.InternalServerError) as caught:
            client.chat.completions.create(**ASKED)
        assert caught.value.status_code == 503
        assert float(caught.value.response.headers["retry-after"]) > 0
        timer = threading.Timer(0.2, streams[0].close)
        timer.start()
        with client_of(server, max_retries=5) as patient:
            answer = patient.chat.completions.with_raw_response.create(**ASKED)
        timer.join()
        assert answer.retries_taken > 0
        assert answer.parse().choices[0].message.content
    finally:
        for stream in streams:
            stream.close()
    assert wait_until(lambda: server.metric("vllm:num_requests_running") == 0)


def test_a_client_that_gives_up_ends_its_request(server: LiveServer) -> None:
    with client_of(server, timeout=0.3) as hasty, pytest.raises(openai.APITimeoutError):
        hasty.chat.completions.create(**{**ASKED, "max_tokens": 1900}, extra_body={"ignore_eos": True})
    assert wait_until(lambda: server.metric("vllm:num_requests_running") == 0)
