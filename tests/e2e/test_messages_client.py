"""The bundled model behind a real server, spoken to by the anthropic package."""

from __future__ import annotations

import json
from collections.abc import Iterator

import anthropic
import httpx
import pytest

from support.live_server import LiveServer, live_server
from support.processes import wait_until

pytestmark = pytest.mark.xdist_group("e2e")

ABORTED = 'vllm:request_success_total{engine="0",finished_reason="abort",model_name="demo"}'
QUESTION = [{"role": "user", "content": "What is a river? Answer in one sentence."}]
SYSTEM = "You are a helpful guide."
TOOL = {
    "name": "get_weather",
    "description": "Tell the weather in a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
FIELDS = {"model": "demo", "messages": QUESTION, "max_tokens": 40, "temperature": 0}


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with live_server("demo", "--max-num-seqs", "8", "--drafter", "ngram", "--draft-len", "4") as one:
        yield one


@pytest.fixture(scope="module")
def client(server: LiveServer) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server.base_url, api_key="unused", max_retries=0) as one:
        yield one


def create(client: anthropic.Anthropic, **options: object) -> anthropic.types.Message:
    """Ask for a message; what the package has no parameter for goes into the body."""
    fields = {**FIELDS, **options}
    body = {name: fields.pop(name) for name in ("temperature", "top_p", "top_k") if name in fields}
    return client.messages.create(**fields, extra_body=body)


def text_of(message: anthropic.types.Message) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def chat(server: LiveServer, **fields: object) -> dict[str, object]:
    body = {"model": "demo", "messages": QUESTION, "max_tokens": 40, "temperature": 0, **fields}
    return httpx.post(f"{server.base_url}/v1/chat/completions", json=body, timeout=60).json()


def test_a_message_says_what_chat_completions_says(client: anthropic.Anthropic, server: LiveServer) -> None:
    for options, fields in (
        ({}, {}),
        ({"system": SYSTEM}, {"messages": [{"role": "system", "content": SYSTEM}, *QUESTION]}),
        ({"max_tokens": 7}, {"max_tokens": 7}),
        ({"top_k": 1, "temperature": 1.0}, {"top_k": 1, "temperature": 1.0}),
    ):
        message, completion = create(client, **options), chat(server, **fields)
        assert text_of(message) == completion["choices"][0]["message"]["content"] != ""
        usage, wanted = message.usage, completion["usage"]
        assert usage.output_tokens == wanted["completion_tokens"]
        assert usage.input_tokens + usage.cache_read_input_tokens == wanted["prompt_tokens"]
        assert (
            message.stop_reason
            == {"stop": "end_turn", "length": "max_tokens"}[completion["choices"][0]["finish_reason"]]
        )


def test_a_stream_ends_as_the_whole_message(client: anthropic.Anthropic) -> None:
    whole = create(client)
    with client.messages.stream(
        model="demo", messages=QUESTION, max_tokens=40, extra_body={"temperature": 0}
    ) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == text_of(final) == text_of(whole)
    assert final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == whole.usage.output_tokens


def test_a_stop_sequence_is_named(client: anthropic.Anthropic) -> None:
    whole = text_of(create(client))
    stop = whole[len(whole) // 2 : len(whole) // 2 + 4]
    cut = create(client, stop_sequences=[stop])
    assert text_of(cut) == whole[: whole.index(stop)]
    assert (cut.stop_reason, cut.stop_sequence) == ("stop_sequence", stop)


def test_thinking_comes_as_a_block_of_its_own(client: anthropic.Anthropic) -> None:
    options = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 300}
    message = create(client, **options)
    assert message.content[0].type == "thinking"
    assert message.content[0].thinking
    assert message.content[0].signature
    with client.messages.stream(model="demo", messages=QUESTION, extra_body={"temperature": 0}, **options) as stream:
        final = stream.get_final_message()
    assert [block.to_dict(exclude_none=True) for block in final.content] == [
        block.to_dict(exclude_none=True) for block in message.content
    ]
    assert create(client, thinking={"type": "disabled"}).content[0].type == "text"


def test_a_tool_is_called_and_its_result_is_read(client: anthropic.Anthropic) -> None:
    question = [{"role": "user", "content": "What is the weather in Paris?"}]
    options = {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "get_weather"}, "max_tokens": 120}
    message = create(client, messages=question, **options)
    assert message.stop_reason == "tool_use"
    (call,) = [block for block in message.content if block.type == "tool_use"]
    assert call.name == "get_weather"
    assert isinstance(call.input["city"], str)
    with client.messages.stream(model="demo", messages=question, extra_body={"temperature": 0}, **options) as stream:
        final = stream.get_final_message()
    assert [block.input for block in final.content if block.type == "tool_use"] == [call.input]
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "Sunny, 21 degrees."}
    turns = [*question, message.to_param(), {"role": "user", "content": [result]}]
    answer = create(client, messages=turns, tools=[TOOL], tool_choice={"type": "none"})
    assert text_of(answer)
    counted = client.messages.count_tokens(model="demo", messages=turns, tools=[TOOL]).input_tokens
    assert counted == answer.usage.input_tokens + answer.usage.cache_read_input_tokens


def test_the_text_follows_a_schema(client: anthropic.Anthropic) -> None:
    form = {"type": "json_schema", "schema": {"enum": ["a river", "a lake"]}}
    message = create(client, output_config={"format": form})
    assert json.loads(text_of(message)) in ("a river", "a lake")
    assert message.stop_reason == "end_turn"


def test_errors_are_the_packages_own(client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError) as missing:
        create(client, model="other")
    assert missing.value.type == "not_found_error"
    with pytest.raises(anthropic.BadRequestError) as bad:
        create(client, messages=[{"role": "user", "content": [{"type": "image", "source": {}}]}])
    assert bad.value.type == "invalid_request_error"
    assert "messages[0].content[0].type" in bad.value.message


def test_a_stream_that_is_left_ends_its_request(client: anthropic.Anthropic, server: LiveServer) -> None:
    num_aborts = server.metrics().get(ABORTED, 0.0)
    # So hot that the end token is one in thousands: the request would go on for long.
    stream = client.messages.create(
        model="demo", messages=QUESTION, max_tokens=1500, stream=True, extra_body={"temperature": 100}
    )
    next(iter(stream))
    stream.close()
    assert wait_until(lambda: server.metrics().get(ABORTED, 0.0) == num_aborts + 1)
    assert wait_until(lambda: server.metric("vllm:num_requests_running") == 0)
