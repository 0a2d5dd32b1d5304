"""The server with its engine process on a GPU: requests of every kind at once, nothing compiled, nothing left."""

from __future__ import annotations

import json
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


def ask(live, place):
    body = {"messages": [{"role": "user", "content": PROMPTS[place % 3]}], "max_tokens": 60, "seed": place}
    kind = place % 5
    body["temperature"] = 0.0 if kind < 2 else 0.8
    if kind == 1:
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
    if kind == 2:
        body |= {"tools": [TOOL], "tool_choice": "required"}
    if kind == 3:
        body |= {"logprobs": True, "top_logprobs": 3, "frequency_penalty": 0.5}
    if kind == 4:
        body |= {"chat_template_kwargs": {"thinking_mode": "enabled"}, "top_p": 0.9}
    answer = httpx.post(f"{live.base_url}/v1/chat/completions", json=body, timeout=120)
    assert answer.status_code == 200, answer.text
    choice = answer.json()["choices"][0]
    if kind == 1:
        assert set(json.loads(choice["message"]["content"])) == {"name"}
    if kind == 2:
        call = choice["message"]["tool_calls"][0]["function"]
        assert call["name"] == "f"
        assert isinstance(json.loads(call["arguments"]), dict)
    if kind == 3:
        assert all(len(entry["top_logprobs"]) == 3 for entry in choice["logprobs"]["content"])
    return choice["message"]


def test_requests_of_every_kind_at_once(server):
    with ThreadPoolExecutor(24) as pool:
        first = list(pool.map(lambda place: ask(server, place), range(60)))
        assert len(first) == 60
    models = httpx.get(f"{server.base_url}/v1/models", timeout=10).json()
    assert models["data"][0]["engine"]["device"] == "cuda"
    assert server.metric("slipstream:late_compiles_total") == 0
    for gauge in ("vllm:num_requests_running", "vllm:num_requests_waiting"):
        assert server.metric(gauge) == 0


def test_it_ends_when_told(server):
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(30) == 0
