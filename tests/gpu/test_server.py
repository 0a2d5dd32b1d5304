"""The server with its engine process on a GPU: requests of every kind at once, nothing compiled, nothing left."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from support.live_server import LiveServer, free_port

SCHEMA = {"type": "object", "properties": {"name": {"enum": ["Ada", "Bo"]}}, "required": ["name"]}
SCHEMA |= {"additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"properties": {"n": {"type": "integer"}}}}}
NUM_REQUESTS, NUM_AT_ONCE = 500, 32
PROMPTS = ("What is a river?", "Tell me something about the sea.", "Nora carries 8 trays. What is 8 * 9?")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    port = free_port()
    log = tmp_path_factory.mktemp("serve") / "log"
    start = "import sys; from slipstream.cli.main import main; sys.exit(main())"
    options = ["serve", "demo", "--port", str(port), "--max-num-seqs", "16", "--device", "cuda", "--drafter", "eagle3"]
    with log.open("wb") as sink:
        process = subprocess.Popen([sys.executable, "-c", start, *options], stdout=sink, stderr=sink)
    live = LiveServer(f"http://127.0.0.1:{port}", process, log)
    try:
        deadline = time.monotonic() + 120
        while not is_ready(live):
            assert process.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < deadline, log.read_text()[-3000:]
            time.sleep(0.3)
        yield live
    finally:
        process.kill()
        process.wait()


def is_ready(live):
    try:
        return httpx.get(f"{live.base_url}/health", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def sampling(place, draws):
    """Fields that both endpoints take: greedy, coupled and rejected draws, filters, edits and wishes in turn."""
    fields = {"max_tokens": draws.randrange(1, 14)}
    fields |= ({"temperature": 0.0}, {"temperature": 0.8, "seed": place}, {"temperature": 1.0})[place % 3]
    if draws.random() < 0.3:
        fields |= {"top_p": 0.9, "top_k": draws.choice([5, 40]), "min_p": 0.01}
    if draws.random() < 0.3:
        fields |= {"repetition_penalty": 1.2, "frequency_penalty": 0.5, "presence_penalty": -0.5}
    if draws.random() < 0.2:
        fields |= {"bad_words": ["the sea", "river"], "logit_bias": {"17": -4.0}}
    if draws.random() < 0.2:
        fields["min_tokens"] = draws.randrange(1, fields["max_tokens"] + 1)
    if draws.random() < 0.15:
        fields |= {"stop": ["."], "ignore_eos": True}
    if draws.random() < 0.15:
        fields["n"] = 2
    return fields


def completion_body(place, draws):
    """A prompt of token ids: of every length from 1 to 1,500."""
    length = draws.choice([1, 2, 15, 16, 17, 63, 64, 65, draws.randrange(1, 300), draws.randrange(300, 1500)])
    fields = sampling(place, draws) | {"prompt": [draws.randrange(4000) for _ in range(length)]}
    kind = place % 6
    if kind in (0, 1):
        fields["logprobs"] = (0, draws.randrange(1, 9))[kind]
    if kind == 2:
        fields |= {"prompt_logprobs": draws.choice([0, 2])}
    if kind == 3:
        fields |= {"guided_regex": "(yes|no)[.]", "max_tokens": 12, "min_tokens": 0}
        for name in ("ignore_eos", "stop"):
            fields.pop(name, None)
    return "/v1/completions", fields


def chat_body(place, draws):
    words = " ".join(draws.choice(PROMPTS) for _ in range(draws.randrange(1, 6)))
    fields = sampling(place, draws) | {"messages": [{"role": "user", "content": words}]}
    kind = place % 7
    if kind == 0:
        fields["response_format"] = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
    if kind == 1:
        fields |= {"tools": [TOOL], "tool_choice": "required"}
    if kind in (0, 1):
        fields |= {"max_tokens": 60, "min_tokens": 0}
        for name in ("ignore_eos", "stop", "bad_words", "logit_bias"):
            fields.pop(name, None)
    if kind in (2, 3):
        fields |= {"logprobs": True, "top_logprobs": (0, draws.randrange(1, 6))[kind - 2]}
    if kind == 4:
        fields["chat_template_kwargs"] = {"thinking_mode": "enabled"}
    return "/v1/chat/completions", fields


def ask(client, place):
    """Send one request of some kind, read all of its answer and check what its kind promises."""
    draws = random.Random(place)
    path, body = (completion_body if place % 2 else chat_body)(place // 2, draws)
    is_stream = place % 5 == 0
    if is_stream:
        with client.stream("POST", path, json=body | {"stream": True}) as answer:
            lines = [line for line in answer.iter_lines() if line]
        assert answer.status_code == 200, lines
        assert lines[-1] == "data: [DONE]", (body, lines[-1])
        assert "error" not in json.loads(lines[0].removeprefix("data: ")), lines[0]
        return
    answer = client.post(path, json=body)
    assert answer.status_code == 200, (body, answer.text)
    choices = answer.json()["choices"]
    assert len(choices) == body.get("n", 1)
    for choice in choices:
        assert choice["finish_reason"] in ("stop", "length", "tool_calls"), (body, choice)
        check_choice(body, choice)


def check_choice(body, choice):
    if "response_format" in body and choice["finish_reason"] == "stop":
        assert set(json.loads(choice["message"]["content"])) == {"name"}
    if "tools" in body and choice["finish_reason"] == "tool_calls":
        call = choice["message"]["tool_calls"][0]["function"]
        assert call["name"] == "f"
        assert isinstance(json.loads(call["arguments"]), dict)
    if body.get("top_logprobs"):
        assert all(len(entry["top_logprobs"]) == body["top_logprobs"] for entry in choice["logprobs"]["content"])
    if body.get("guided_regex") and choice["finish_reason"] == "stop":
        assert choice["text"] in ("yes.", "no.")


def test_nothing_is_compiled_over_five_hundred_requests_of_every_kind(server):
    limits = httpx.Limits(max_connections=NUM_AT_ONCE)
    with (
        httpx.Client(base_url=server.base_url, timeout=120, limits=limits) as client,
        ThreadPoolExecutor(NUM_AT_ONCE) as pool,
    ):
        assert len(list(pool.map(lambda place: ask(client, place), range(NUM_REQUESTS)))) == NUM_REQUESTS
    models = httpx.get(f"{server.base_url}/v1/models", timeout=10).json()
    assert models["data"][0]["engine"]["device"] == "cuda"
    assert server.metric("slipstream:late_compiles_total") == 0
    for gauge in ("vllm:num_requests_running", "vllm:num_requests_waiting"):
        assert server.metric(gauge) == 0


def test_it_ends_when_told(server):
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(30) == 0
