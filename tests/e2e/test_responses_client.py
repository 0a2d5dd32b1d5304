"""The bundled model behind a real server, spoken to by the Responses API of the openai package."""

from __future__ import annotations

import json
from collections.abc import Iterator

import openai
import pytest
from openai.types.responses import Response

from support.live_server import LiveServer, live_server
from support.processes import wait_until

pytestmark = pytest.mark.xdist_group("e2e")

ABORTED = 'vllm:request_success_total{engine="0",finished_reason="abort",model_name="demo"}'
QUESTION = [{"role": "user", "content": "What is a river? Answer in one sentence."}]
SYSTEM = "You are a helpful guide."
TOOL = {
    "type": "function",
    "name": "get_weather",
    "description": "Tell the weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": False,
}
CHOICE = {"type": "function", "name": "get_weather"}


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with live_server("demo", "--max-num-seqs", "8", "--drafter", "ngram", "--draft-len", "4") as one:
        yield one


@pytest.fixture(scope="module")
def client(server: LiveServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="unused", max_retries=0) as one:
        yield one


def create(client: openai.OpenAI, **options: object) -> Response:
    return client.responses.create(
        **{"model": "demo", "input": QUESTION, "max_output_tokens": 40, "temperature": 0, **options}
    )


def streamed(client: openai.OpenAI, **options: object) -> tuple[Response, list[object]]:
    """Return the answer that the package puts together, and every event."""
    fields = {"model": "demo", "input": QUESTION, "max_output_tokens": 40, "temperature": 0, **options}
    with client.responses.create(**fields, stream=True) as stream:
        events = list(stream)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    return events[-1].response, events


def joined(events: list[object], kind: str) -> str:
    return "".join(event.delta for event in events if event.type == f"response.{kind}.delta")


def test_an_answer_says_what_chat_completions_says(client: openai.OpenAI) -> None:
    for options, fields in (
        ({}, {}),
        ({"input": QUESTION[0]["content"]}, {}),
        ({"instructions": SYSTEM}, {"messages": [{"role": "system", "content": SYSTEM}, *QUESTION]}),
        ({"temperature": 0.9, "top_p": 0.8, "extra_body": {"seed": 7}}, {"temperature": 0.9, "top_p": 0.8, "seed": 7}),
    ):
        found = create(client, **options)
        wanted = client.chat.completions.create(
            **{"model": "demo", "messages": QUESTION, "max_tokens": 40, "temperature": 0, **fields}
        )
        assert found.output_text == wanted.choices[0].message.content != ""
        assert found.usage is not None
        assert wanted.usage is not None
        assert found.usage.output_tokens == wanted.usage.completion_tokens
        assert found.usage.input_tokens == wanted.usage.prompt_tokens
        assert found.status == {"stop": "completed", "length": "incomplete"}[wanted.choices[0].finish_reason]


def test_a_stream_ends_as_the_whole_answer(client: openai.OpenAI) -> None:
    whole = create(client)
    final, events = streamed(client)
    assert joined(events, "output_text") == final.output_text == whole.output_text
    assert (final.status, final.usage.output_tokens) == (whole.status, whole.usage.output_tokens)
    with client.responses.stream(model="demo", input=QUESTION, max_output_tokens=300, temperature=0) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        assert stream.get_final_response().output_text == text != ""


def test_a_limit_makes_it_incomplete(client: openai.OpenAI) -> None:
    found = create(client, max_output_tokens=3)
    assert (found.status, found.usage.output_tokens) == ("incomplete", 3)
    assert found.incomplete_details.reason == "max_output_tokens"


def test_reasoning_comes_as_an_item_of_its_own(client: openai.OpenAI) -> None:
    options = {"reasoning": {"effort": "high"}, "max_output_tokens": 300}
    found = create(client, **options)
    first = found.output[0]
    assert first.type == "reasoning"
    assert first.content[0].text
    assert found.usage.output_tokens_details.reasoning_tokens > 0
    final, events = streamed(client, **options)
    assert joined(events, "reasoning_text") == first.content[0].text
    assert final.output_text == found.output_text
    again = [*QUESTION, *found.output, {"role": "user", "content": "Go on."}]
    assert create(client, input=again, reasoning={"effort": "none"}).output[0].type == "message"


def test_a_tool_is_called_and_its_result_is_read(client: openai.OpenAI) -> None:
    question = [{"role": "user", "content": "What is the weather in Paris?"}]
    options = {"tools": [TOOL], "tool_choice": CHOICE, "max_output_tokens": 120}
    found = create(client, input=question, **options)
    assert found.status == "completed"
    (call,) = [item for item in found.output if item.type == "function_call"]
    assert call.name == "get_weather"
    assert isinstance(json.loads(call.arguments)["city"], str)
    _, events = streamed(client, input=question, **options)
    assert joined(events, "function_call_arguments") == call.arguments
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "Sunny, 21 degrees."}
    answer = create(client, input=[*question, *found.output, result], tools=[TOOL], tool_choice="none")
    assert answer.output_text


def test_the_text_follows_a_schema(client: openai.OpenAI) -> None:
    form = {"type": "json_schema", "name": "water", "schema": {"enum": ["a river", "a lake"]}, "strict": True}
    found = create(client, text={"format": form})
    assert json.loads(found.output_text) in ("a river", "a lake")
    assert found.status == "completed"


def test_errors_are_the_packages_own(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as bad:
        create(client, previous_response_id="resp_1")
    assert bad.value.param == "previous_response_id"
    with pytest.raises(openai.NotFoundError):
        create(client, model="other")


def test_a_stream_that_is_left_ends_its_request(client: openai.OpenAI, server: LiveServer) -> None:
    num_aborts = server.metrics().get(ABORTED, 0.0)
    # So hot that the end token is one in thousands: the request would go on for long.
    stream = client.responses.create(model="demo", input=QUESTION, max_output_tokens=1500, temperature=100, stream=True)
    next(iter(stream))
    stream.close()
    assert wait_until(lambda: server.metrics().get(ABORTED, 0.0) == num_aborts + 1)
    assert wait_until(lambda: server.metric("vllm:num_requests_running") == 0)
