"""The bundled model behind a real server, spoken to by the openai package and by a client of our own.

One server serves the module; every request names what it needs, so the order of tests does not matter.
"""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest

from support.live_server import LiveServer, live_server
from support.plain_client import PlainClient, text_of
from support.processes import wait_until

pytestmark = pytest.mark.xdist_group("e2e")

ABORTED = 'vllm:request_success_total{engine="0",finished_reason="abort",model_name="demo"}'
QUESTION = [{"role": "user", "content": "What is a river? Answer in one sentence."}]


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with live_server("demo", "--max-num-seqs", "8") as one:
        yield one


@pytest.fixture(scope="module")
def client(server: LiveServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="unused", max_retries=0) as one:
        yield one


@pytest.fixture(scope="module")
def plain(server: LiveServer) -> PlainClient:
    return PlainClient(server.base_url)


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
        {"presence_penalty": 2.5},
        {"n": 0},
        {"tools": [{"type": "function", "function": {"name": "no blanks"}}]},
        {"max_tokens": 10**7},
        {"messages": []},
    ],
)
def test_what_cannot_be_served_is_refused_by_name(client: openai.OpenAI, options: dict[str, object]) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        answer(client, **options)
    assert caught.value.status_code == 400


def question(**options: object) -> dict[str, object]:
    return {"model": "demo", "messages": QUESTION, "max_tokens": 40, **options}


def test_a_plain_client_gets_the_same_stream(plain: PlainClient, client: openai.OpenAI) -> None:
    chunks = plain.stream(**question(temperature=0))
    assert text_of(chunks) == answer(client, temperature=0).choices[0].message.content
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"]][-1] in ("stop", "length")


def test_a_plain_client_gets_its_stop_strings(plain: PlainClient) -> None:
    whole = plain.chat(**question(temperature=0))["choices"][0]["message"]["content"]
    stop = whole[len(whole) // 2 : len(whole) // 2 + 4]
    cut = plain.chat(**question(temperature=0, stop=[stop]))["choices"][0]
    assert (cut["message"]["content"], cut["finish_reason"]) == (whole[: whole.index(stop)], "stop")
    assert text_of(plain.stream(**question(temperature=0, stop=[stop]))) == whole[: whole.index(stop)]


def test_a_plain_client_gets_the_same_text_for_the_same_seed(plain: PlainClient) -> None:
    texts = [text_of(plain.stream(**question(seed=seed, temperature=1.0))) for seed in (5, 5, 6, 7)]
    assert texts[0] == texts[1]
    assert len(set(texts)) > 1


def test_a_plain_client_that_leaves_ends_its_request(plain: PlainClient, server: LiveServer) -> None:
    num_aborted = server.metric(ABORTED)
    assert plain.read_and_leave(100, **question(max_tokens=1500, ignore_eos=True)).startswith(b"data: ")
    assert wait_until(lambda: server.metric(ABORTED) > num_aborted), "the request runs on"
