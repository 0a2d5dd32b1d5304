"""Every sampling field over HTTP gives what `LLM` gives for the same parameters, on the bundled model."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from slipstream.frontend.llm import LLM
from slipstream.wire.sampling_params import SamplingParams
from support.live_server import LiveServer, live_server
from support.processes import wait_until

pytestmark = pytest.mark.xdist_group("e2e")

PROMPT = "The river is"
NUM_TOKENS = 16
JSON = {"content-type": "application/json"}
BASE = {"temperature": 1.0, "seed": 11, "ignore_eos": True, "max_tokens": 32}
OPTIONS = {"max_num_seqs": 6, "max_model_len": 512}


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with live_server("demo", "--max-num-seqs", "6", "--max-model-len", "512", "--max-queue", "6") as one:
        yield one


@pytest.fixture(scope="module")
def client(server: LiveServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="unused", max_retries=0) as one:
        yield one


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM("demo", threads=1, **OPTIONS) as one:
        yield one


def ask(server: LiveServer, **fields: Any) -> dict[str, Any]:
    """Ask for a whole answer with its token ids."""
    body = {"model": "demo", "prompt": PROMPT, "max_tokens": NUM_TOKENS, "temperature": 0, "return_token_ids": True}
    reply = httpx.post(f"{server.base_url}/v1/completions", json=body | fields, timeout=60)
    assert reply.status_code == 200, reply.text
    return reply.json()


def offline(llm: LLM, **fields: Any):
    params = SamplingParams(**({"max_tokens": NUM_TOKENS, "temperature": 0} | fields))
    return llm.generate(PROMPT, params)[0]


@pytest.fixture(scope="module")
def plain(llm: LLM):
    return offline(llm, **BASE)


def fields_of(plain: Any) -> dict[str, dict[str, Any]]:
    """One field or two by name, each of which changes the plain text."""
    first, second, third = plain.token_ids[:3]
    word = next(word for word in plain.text.split() if word.isalpha() and len(word) > 2)
    return {
        "repetition_penalty": {"repetition_penalty": 1.8},
        "penalties": {"presence_penalty": 2.0, "frequency_penalty": 1.0},
        "logit_bias": {"logit_bias": {str(first): -100, str(second): -5.5}},
        "allowed_token_ids": {"allowed_token_ids": [id_ for id_ in range(300, 1200) if id_ != second]},
        "bad_words": {"bad_words": [word]},
        "min_tokens": {"min_tokens": 6, "stop_token_ids": [first, third]},
        "seed": {"seed": 12, "top_k": 40},
        "greedy": {"temperature": 0},
    }


@pytest.mark.parametrize("name", fields_of(type("P", (), {"token_ids": (1, 2, 3), "text": "word"})))
def test_a_field_over_http_is_the_parameter_of_the_same_name(
    server: LiveServer, llm: LLM, plain: Any, name: str
) -> None:
    fields = BASE | fields_of(plain)[name]
    expected = offline(llm, **fields)
    assert expected.token_ids != plain.token_ids, "the field changes nothing here: the test would prove nothing"
    (choice,) = ask(server, **fields)["choices"]
    assert choice["token_ids"] == list(expected.token_ids)
    assert (choice["text"], choice["finish_reason"]) == (expected.text, expected.finish_reason)


def test_n_choices_are_n_requests_with_seeds_in_a_row(server: LiveServer, llm: LLM) -> None:
    warm = {"temperature": 1.2, "top_p": 0.95}
    answer = ask(server, prompt=[PROMPT, "Once upon a time"], n=3, seed=40, logprobs=1, **warm)
    assert len(answer["choices"]) == 6
    for choice in answer["choices"]:
        prompt, seed = (PROMPT, "Once upon a time")[choice["index"] // 3], 40 + choice["index"] % 3
        (alone,) = ask(server, prompt=prompt, seed=seed, **warm)["choices"]
        assert alone["token_ids"] == choice["token_ids"]
        params = SamplingParams(seed=seed, max_tokens=NUM_TOKENS, **warm)
        assert list(llm.generate(prompt, params)[0].token_ids) == choice["token_ids"]
    assert len({choice["text"] for choice in answer["choices"]}) > 3
    usage = answer["usage"]
    assert usage["completion_tokens"] == sum(len(choice["token_ids"]) for choice in answer["choices"])
    assert usage["prompt_tokens"] == sum(len(answer["choices"][place]["prompt_token_ids"]) for place in (0, 3))


def test_logprobs_are_those_of_the_engine(server: LiveServer, llm: LLM) -> None:
    (choice,) = ask(server, logprobs=4, return_tokens_as_token_ids=True)["choices"]
    expected = offline(llm, logprobs=4)
    logprobs = choice["logprobs"]
    assert logprobs["tokens"] == [f"token_id:{id_}" for id_ in expected.token_ids]
    assert logprobs["token_logprobs"] == pytest.approx(expected.logprobs, abs=1e-4)
    for shown, top in zip(logprobs["top_logprobs"], expected.top_logprobs, strict=True):
        assert shown == pytest.approx({f"token_id:{id_}": value for id_, value in top}, abs=1e-4)
        assert len(top) == 4


def test_text_offsets_find_the_tokens_in_the_text(server: LiveServer) -> None:
    (choice,) = ask(server, prompt="Caf\u00e9 \u4f60\u597d: ", echo=True, logprobs=0, skip_special_tokens=False)[
        "choices"
    ]
    logprobs = choice["logprobs"]
    for token, offset in zip(logprobs["tokens"], logprobs["text_offset"], strict=True):
        assert choice["text"][offset : offset + len(token)] == token or "\ufffd" in token


@pytest.mark.parametrize("max_tokens", [0, 5])
def test_an_echo_carries_the_engines_prompt_logprobs(server: LiveServer, llm: LLM, max_tokens: int) -> None:
    answer = ask(server, echo=True, logprobs=2, prompt_logprobs=3, max_tokens=max_tokens)
    (choice,) = answer["choices"]
    expected = offline(llm, prompt_logprobs=3, logprobs=2, max_tokens=max(max_tokens, 1))
    num_prompt_tokens = len(expected.prompt_token_ids)
    assert choice["prompt_token_ids"] == list(expected.prompt_token_ids)
    generated = "" if max_tokens == 0 else expected.text
    assert choice["text"] == PROMPT + generated
    values = choice["logprobs"]["token_logprobs"]
    assert values[0] is None
    assert values[1:num_prompt_tokens] == pytest.approx(expected.prompt_logprobs, abs=1e-4)
    assert values[num_prompt_tokens:] == pytest.approx(expected.logprobs[:max_tokens], abs=1e-4)
    for entry, id_, value, top in zip(
        choice["prompt_logprobs"][1:],
        expected.prompt_token_ids[1:],
        expected.prompt_logprobs,
        expected.prompt_top_logprobs,
        strict=True,
    ):
        ranks = {str(other): place for place, (other, _) in enumerate(top, start=1)}
        assert set(entry) == {str(id_), *ranks}
        assert {key: one["rank"] for key, one in entry.items() if "rank" in one} == ranks
        assert entry[str(id_)]["logprob"] == pytest.approx(value, abs=1e-4)
    assert answer["usage"]["completion_tokens"] == max_tokens
    assert choice["finish_reason"] == "length"


def test_a_continuation_scored_as_a_prompt_has_the_logprobs_it_was_drawn_with(server: LiveServer) -> None:
    """What an evaluation that compares continuations relies on."""
    (drawn,) = ask(server, logprobs=0, ignore_eos=True)["choices"]
    ids = [*drawn["prompt_token_ids"], *drawn["token_ids"]]
    (scored,) = ask(server, prompt=ids, echo=True, logprobs=1, max_tokens=0)["choices"]
    behind = slice(len(drawn["prompt_token_ids"]), None)
    assert scored["logprobs"]["token_logprobs"][behind] == pytest.approx(drawn["logprobs"]["token_logprobs"], abs=1e-3)
    for token, top in zip(
        scored["logprobs"]["tokens"][behind], scored["logprobs"]["top_logprobs"][behind], strict=True
    ):
        assert max(top, key=top.__getitem__) == token, "a greedy continuation is the likeliest one"


def test_the_openai_client_reads_every_shape(client: openai.OpenAI) -> None:
    options = {"model": "demo", "prompt": [PROMPT, "It was"], "max_tokens": 6, "temperature": 0}
    extra = {"prompt_logprobs": 1, "return_token_ids": True}
    whole = client.completions.create(**options, n=2, best_of=2, echo=True, logprobs=2, seed=1, extra_body=extra)
    assert [choice.index for choice in whole.choices] == [0, 1, 2, 3]
    assert whole.usage is not None
    stream = client.completions.create(
        **options,
        n=2,
        echo=True,
        logprobs=2,
        seed=1,
        stream=True,
        stream_options={"include_usage": True},
        extra_body=extra | {"stream_options": {"include_usage": True, "continuous_usage_stats": True}},
    )
    texts, tokens = [""] * 4, [[] for _ in range(4)]
    usage = None
    for chunk in stream:
        usage = chunk.usage
        assert usage is not None
        for choice in chunk.choices:
            texts[choice.index] += choice.text
            tokens[choice.index] += choice.logprobs.tokens if choice.logprobs else []
    for choice in whole.choices:
        assert choice.text == texts[choice.index]
        assert choice.logprobs is not None
        assert choice.logprobs.tokens == tokens[choice.index]
        assert choice.logprobs.token_logprobs[0] is None
    assert usage is not None
    assert usage.total_tokens == whole.usage.total_tokens


CONSTRAINTS = {
    "choice": ({"guided_choice": ["north", "south-west"]}, r"north|south-west"),
    "regex": ({"structured_outputs": {"regex": r"[0-9]{3}-[a-c]{2}"}}, r"[0-9]{3}-[a-c]{2}"),
    "grammar": ({"guided_grammar": 'start: "<" ("x" | "y")+ ">"'}, r"<[xy]+>"),
}


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_a_constrained_text_matches_its_constraint(server: LiveServer, name: str) -> None:
    fields, pattern = CONSTRAINTS[name]
    answer = ask(server, n=3, seed=3, temperature=1.0, max_tokens=64, **fields)
    for choice in answer["choices"]:
        if choice["finish_reason"] == "stop":
            assert re.fullmatch(pattern, choice["text"]), choice["text"]
    assert any(choice["finish_reason"] == "stop" for choice in answer["choices"])


def test_a_schema_shapes_the_text(server: LiveServer) -> None:
    schema = {
        "type": "object",
        "properties": {"size": {"enum": ["small", "large"]}, "ok": {"type": "boolean"}},
        "required": ["size", "ok"],
        "additionalProperties": False,
    }
    wanted = {"type": "json_schema", "json_schema": {"name": "thing", "schema": schema, "strict": True}}
    answer = ask(server, response_format=wanted, max_tokens=100, temperature=1.0, seed=2, n=6, frequency_penalty=2)
    finished = [choice["text"] for choice in answer["choices"] if choice["finish_reason"] == "stop"]
    assert finished
    for value in map(json.loads, finished):
        assert set(value) == {"size", "ok"}
        assert value["size"] in ("small", "large")
        assert isinstance(value["ok"], bool)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "what"}}}}, 0),
        ({"guided_regex": "(?=a)"}, 0),
        ({"guided_regex": "("}, 0),
        ({"guided_grammar": "start: nothing"}, 0),
        ({"structured_outputs": {"json": {"$ref": "https://elsewhere"}}}, 0),
        ({"guided_regex": "a", "guided_choice": ["a"]}, 1),
    ],
)
@pytest.mark.parametrize("is_stream", [False, True])
def test_a_constraint_that_cannot_be_kept_is_refused_by_its_field(
    server: LiveServer, fields: dict[str, Any], param: int, is_stream: bool
) -> None:
    body = {"model": "demo", "prompt": PROMPT, "stream": is_stream, "n": 2, **fields}
    reply = httpx.post(f"{server.base_url}/v1/completions", json=body, timeout=60)
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["param"] == list(fields)[param]
    assert reply.json()["error"]["code"] == "invalid_grammar" or param


BAD = {
    "temperature": ["1", True, [], b"1e999", b"NaN", b"-1e400"],
    "presence_penalty": ["0", 2.01, b"1e999", 10**40],
    "frequency_penalty": ["0", -2.01, b"-1e999"],
    "repetition_penalty": [0, -1, 101, b"1e999", 10**400],
    "logit_bias": [[1], {"x": 1}, {"1": "2"}, {"1": 101}, {"999999": 1}, {"9" * 5000: 1}, {"-1": 1}],
    "allowed_token_ids": [[], [-1], [999_999], ["1"], [1.5], 5, [10**40]],
    "bad_words": ["word", [""], [1], ["  "], ["word"] * 300],
    "min_tokens": [-1, 17, 1.5, "1", 10**40],
    "prompt_logprobs": [-1, 21, True, "1", 10**40],
    "logprobs": [-1, 21, True, "1", 10**40],
    "n": [0, 129, -1, 1.5, "2", True, 10**40],
    "best_of": [2, 0, "1"],
    "echo": [1, "true"],
    "max_tokens": [0, -1, "5", 10**40],
    "return_token_ids": [1],
    "stream_options": [{"include_usage": True}, [], {"surprise": 1}],
    "response_format": ["json_object", {}, {"type": "xml"}],
    "structured_outputs": [{"yaml": 1}, [], {"json": 5}],
    "guided_json": [5, "{"],
    "guided_choice": [[], "a", [1]],
    "use_beam_search": [True],
    "guided_decoding_backend": ["xgrammar"],
}


@pytest.mark.parametrize("name", BAD)
def test_every_refused_value_is_a_400_that_names_its_field(server: LiveServer, name: str) -> None:
    with httpx.Client(base_url=server.base_url, timeout=60) as one:
        for value in BAD[name]:
            raw = value if isinstance(value, bytes) else json.dumps(value).encode()
            content = b'{"model": "demo", "prompt": "The river", "%s": %s}' % (name.encode(), raw)
            reply = one.post("/v1/completions", content=content, headers=JSON)
            assert reply.status_code == 400, (value, reply.text)
            error = reply.json()["error"]
            if not isinstance(value, bytes):
                assert error["param"] == name, (value, error)
            assert len(error["message"]) < 1500


def test_more_choices_than_the_server_holds(server: LiveServer) -> None:
    body = {"model": "demo", "prompt": ["a", "b"], "n": 7}
    reply = httpx.post(f"{server.base_url}/v1/completions", json=body, timeout=60)
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "n"
    assert "14 requests" in reply.json()["error"]["message"]


def test_choices_that_find_no_place_are_a_503_and_leaving_ends_all_of_them(server: LiveServer) -> None:
    body = {"model": "demo", "prompt": PROMPT, "n": 8, "max_tokens": 500, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"{server.base_url}/v1/completions", json=body, timeout=60) as stream:
        lines = stream.iter_lines()
        assert next(lines).startswith("data: ")
        for is_stream in (False, True):
            refused = httpx.post(
                f"{server.base_url}/v1/completions", json=body | {"stream": is_stream, "max_tokens": 4}, timeout=60
            )
            assert refused.status_code == 503, refused.text
            assert refused.headers["retry-after"]
        assert wait_until(lambda: server.metric("vllm:num_requests_running") == 6)
    idle = ("vllm:num_requests_running", "vllm:num_requests_waiting")
    assert wait_until(lambda: [server.metric(name) for name in idle] == [0, 0]), "choices run on for nobody"


def test_a_million_biases_are_refused_at_once_and_nothing_is_left_running(server: LiveServer) -> None:
    body = {"model": "demo", "prompt": "a", "logit_bias": {str(id_): 1 for id_ in range(1_000_000)}}
    reply = httpx.post(f"{server.base_url}/v1/completions", json=body, timeout=60)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "logit_bias")
    assert ask(server)["choices"][0]["text"]
    assert server.metric("vllm:num_requests_running") == 0
