"""The bundled model behind a real server, spoken to by the openai package and by curl.

One server serves the module; every request names what it needs, so the order of tests does not matter.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import openai
import pytest

from support.live_server import LiveServer, live_server

pytestmark = pytest.mark.xdist_group("e2e")

QUESTION = [{"role": "user", "content": "What is a river? Answer in one sentence."}]


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with live_server("demo", "--max-num-seqs", "8") as one:
        yield one


@pytest.fixture(scope="module")
def client(server: LiveServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="unused", max_retries=0) as one:
        yield one


def answer(client: openai.OpenAI, **options: object) -> openai.types.chat.ChatCompletion:
    return client.chat.completions.create(**{"model": "demo", "messages": QUESTION, "max_tokens": 40, **options})


def streamed(client: openai.OpenAI, **options: object) -> str:
    stream = client.chat.completions.create(
        **{"model": "demo", "messages": QUESTION, "max_tokens": 40, "stream": True, **options}
    )
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)


def test_the_model_is_listed(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["demo"]


def test_a_chat_answer_has_words_and_usage(client: openai.OpenAI) -> None:
    completion = answer(client, temperature=0)
    text = completion.choices[0].message.content or ""
    assert len(text.split()) >= 3
    usage = completion.usage
    assert usage is not None
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    details = usage.completion_tokens_details
    assert details is not None
    speculation = usage.model_extra["speculation"]  # type: ignore[index]
    assert details.accepted_prediction_tokens == speculation["num_accepted"] > 0
    assert details.rejected_prediction_tokens == speculation["num_draft_tokens"] - speculation["num_accepted"]


@pytest.mark.parametrize("options", [{"temperature": 0}, {"seed": 11, "temperature": 0.8, "top_p": 0.9}])
def test_streaming_gives_the_same_text(client: openai.OpenAI, options: dict[str, object]) -> None:
    assert streamed(client, **options) == answer(client, **options).choices[0].message.content


def test_the_same_seed_gives_the_same_text_and_another_seed_another(client: openai.OpenAI) -> None:
    texts = [answer(client, seed=seed, temperature=1.0).choices[0].message.content for seed in (5, 5, 6, 7)]
    assert texts[0] == texts[1]
    assert len(set(texts)) > 1


def test_a_stop_string_ends_the_text_before_it(client: openai.OpenAI) -> None:
    whole = answer(client, temperature=0).choices[0].message.content or ""
    stop = whole[len(whole) // 2 : len(whole) // 2 + 4]
    cut = answer(client, temperature=0, stop=[stop])
    assert cut.choices[0].message.content == whole[: whole.index(stop)]
    assert cut.choices[0].finish_reason == "stop"
    assert streamed(client, temperature=0, stop=[stop]) == whole[: whole.index(stop)]


def test_max_tokens_is_exact(client: openai.OpenAI) -> None:
    for max_tokens in (1, 2, 3, 4, 5, 7):
        completion = answer(client, temperature=0, max_tokens=max_tokens)
        assert completion.choices[0].finish_reason == "length"
        assert completion.usage is not None
        assert completion.usage.completion_tokens == max_tokens


def test_completions_take_text_and_token_ids(client: openai.OpenAI, server: LiveServer) -> None:
    import httpx

    ids = httpx.post(f"{server.base_url}/tokenize", json={"model": "demo", "prompt": "The river is"}).json()["tokens"]
    from_text = client.completions.create(model="demo", prompt="The river is", temperature=0, max_tokens=8)
    from_ids = client.completions.create(model="demo", prompt=ids, temperature=0, max_tokens=8)
    assert from_text.choices[0].text == from_ids.choices[0].text != ""


def test_a_stream_that_is_left_ends_its_request(client: openai.OpenAI, server: LiveServer) -> None:
    stream = client.chat.completions.create(
        model="demo", messages=QUESTION, max_tokens=1500, stream=True, extra_body={"ignore_eos": True}
    )
    next(iter(stream))
    stream.close()
    for _ in range(100):
        if server.metric("vllm:num_requests_running") == 0:
            return
        import time

        time.sleep(0.1)
    raise AssertionError("the request still runs ten seconds after its client left")


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": -1},
        {"top_p": 0},
        {"extra_body": {"top_k": -2}},
        {"extra_body": {"surprise": 1}},
        {"presence_penalty": 0.5},
        {"n": 2},
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"max_tokens": 10**7},
        {"messages": []},
    ],
)
def test_what_cannot_be_served_is_refused_by_name(client: openai.OpenAI, options: dict[str, object]) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        answer(client, **options)
    assert caught.value.status_code == 400


def test_curl_gets_the_same_stream(server: LiveServer, client: openai.OpenAI) -> None:
    """An independent client: the bytes on the wire are server-sent events that end with [DONE]."""
    body = {"model": "demo", "messages": QUESTION, "max_tokens": 40, "temperature": 0, "stream": True}
    command = ["curl", "-sS", "-N", f"{server.base_url}/v1/chat/completions"]
    command += ["-H", "content-type: application/json", "-d", json.dumps(body)]
    lines = subprocess.run(command, capture_output=True, check=True, timeout=60).stdout.decode().split("\n\n")
    events = [line.removeprefix("data: ") for line in lines if line]
    assert events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    text = "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
    assert text == answer(client, temperature=0).choices[0].message.content
