"""The life of the server process: early bind, readiness, drain on SIGTERM, and nothing left behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager

import httpx
import msgspec
import pytest
import uvicorn

from slipstream.base.errors import ConfigError
from slipstream.server.serve import MAX_CONNECTIONS, bind, http_config, serve
from support.fake_engine import FakeConfig, FakeModelSection, FakeParallelSection, FakeServerSection
from support.processes import is_alive, python_path, wait_until
from support.tiny_text import tiny_folder

LONG = {"model": "tiny", "prompt": "ABC", "max_tokens": 300, "ignore_eos": True}


class Server:
    """A server process and the lines it prints."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []

    def until(self, word: str) -> str:
        """Read lines until one begins with a word; return the rest of it."""
        for line in self.process.stdout:
            self.lines.append(line.strip())
            if line.startswith(word):
                return line.removeprefix(word).strip()
        raise AssertionError(f"{word!r} was never printed: {self.lines}")


@contextmanager
def server(path: str | None = None, section: dict | None = None, **fields):
    config = FakeConfig(
        model=FakeModelSection(path=path or str(tiny_folder())), server=FakeServerSection(**(section or {})), **fields
    )
    command = [sys.executable, "-m", "support.fake_server", msgspec.json.encode(config).decode()]
    environment = {**os.environ, "PYTHONPATH": python_path()}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield Server(process)
        finally:
            if process.poll() is None:
                process.kill()


def test_more_than_one_rank_is_refused_with_the_reason():
    config = FakeConfig(model=FakeModelSection(path="nowhere"), parallel=FakeParallelSection(tp_size=2))
    with pytest.raises(ConfigError, match="tp=2: a server runs one rank, because ranks are not supervised.*allowed: 1"):
        serve(config)


def test_the_port_is_bound_before_the_model_is_loaded():
    with server(load_s=1.5) as s:
        url = s.until("listening")
        s.until("progress")
        reply = httpx.get(f"{url}/health")
        assert reply.status_code == 503
        assert reply.json()["status"] == "loading"
        reply = httpx.post(f"{url}/v1/completions", json={"prompt": "A"})
        assert (reply.status_code, reply.headers["retry-after"]) == (503, "1")
        assert s.until("ready") == url
        assert httpx.get(f"{url}/health").status_code == 200
        assert httpx.post(f"{url}/v1/completions", json={"prompt": "A"}).json()["choices"][0]["text"] == "A"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_signal_drains_and_exits_with_zero(number):
    with server(step_s=0.01) as s:
        engine = int(s.until("engine"))
        url = s.until("ready")
        answers, asking = ask(url)
        s.process.send_signal(number)
        assert wait_until(lambda: httpx.get(f"{url}/health").json()["status"] == "draining")
        assert httpx.post(f"{url}/v1/completions", json=LONG).status_code == 503
        asking.join()
        assert answers[0].status_code == 200
        assert answers[0].json()["usage"]["completion_tokens"] == 300
        s.until("ended")
        assert s.process.wait(10) == 0
        assert wait_until(lambda: not is_alive(engine))


def ask(url: str) -> tuple[list[httpx.Response], threading.Thread]:
    """Ask for a long answer in a thread; return once the request is in flight."""
    answers: list[httpx.Response] = []
    asking = threading.Thread(target=lambda: answers.append(httpx.post(f"{url}/v1/completions", json=LONG, timeout=30)))
    asking.start()
    assert wait_until(lambda: is_running(httpx.get(f"{url}/metrics").text))
    return answers, asking


def is_running(text: str) -> bool:
    return any(line.startswith("slipstream:streams{") and line.endswith(" 1.0") for line in text.splitlines())


def test_a_stream_that_outlives_the_drain_gets_an_error_event():
    with server(step_s=0.05, section={"drain_s": 0.2}) as s:
        url = s.until("ready")
        with httpx.stream("POST", f"{url}/v1/completions", json=LONG | {"stream": True}, timeout=30) as reply:
            lines = reply.iter_lines()
            next(lines)
            s.process.send_signal(signal.SIGTERM)
            rest = [line for line in lines if line]
        assert "shutting down" in rest[-1]
        s.until("ended")
        assert s.process.wait(10) == 0


def test_a_whole_answer_that_outlives_the_drain_is_a_503():
    with server(step_s=0.05, section={"drain_s": 0.2}) as s:
        url = s.until("ready")
        answers, asking = ask(url)
        s.process.send_signal(signal.SIGTERM)
        asking.join()
        assert answers[0].status_code == 503
        assert "shutting down" in answers[0].json()["error"]["message"]
        s.until("ended")
        assert s.process.wait(10) == 0


def test_a_second_signal_ends_at_once():
    with server(step_s=0.05, section={"drain_s": 60}) as s:
        url = s.until("ready")
        with httpx.stream("POST", f"{url}/v1/completions", json=LONG | {"stream": True}, timeout=30) as reply:
            lines = reply.iter_lines()
            next(lines)
            s.process.send_signal(signal.SIGTERM)
            assert wait_until(lambda: httpx.get(f"{url}/health").json()["status"] == "draining")
            s.process.send_signal(signal.SIGTERM)
            s.until("ended")
            assert s.process.wait(10) == 0


def test_a_signal_while_loading_ends_it():
    with server(load_s=60) as s:
        engine = int(s.until("engine"))
        s.until("progress")
        s.process.send_signal(signal.SIGTERM)
        s.until("ended")
        assert s.process.wait(20) == 0
        assert wait_until(lambda: not is_alive(engine))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"fail": "layer 3 is missing"}, "CheckpointError layer 3 is missing"),
        ({"exit_code": 9}, "EngineError the engine process"),
        ({"path": "no-such-folder"}, "CheckpointError no-such-folder is not a folder"),
    ],
)
def test_an_engine_that_cannot_start_ends_the_server_with_its_reason(fields, says):
    with server(**fields) as s:
        engine = int(s.until("engine"))
        assert s.until("error").startswith(says)
        assert s.process.wait(20) == 2
        assert wait_until(lambda: not is_alive(engine))


def test_the_engines_death_shows_in_health_and_ends_the_server():
    with server() as s:
        engine = int(s.until("engine"))
        url = s.until("ready")
        os.kill(engine, signal.SIGKILL)
        assert wait_until(lambda: httpx.get(f"{url}/health").status_code == 503)
        told = httpx.get(f"{url}/health").json()
        assert told["status"] == "dead"
        assert "SIGKILL" in told["reason"]
        reply = httpx.post(f"{url}/v1/completions", json={"prompt": "A"})
        assert reply.status_code == 503
        assert "SIGKILL" in reply.json()["error"]["message"]
        assert s.until("error").startswith("EngineError the engine died: ")
        assert s.process.wait(20) == 2


def test_a_death_while_draining_is_no_success():
    with server(step_s=0.05, section={"drain_s": 60}) as s:
        engine = int(s.until("engine"))
        url = s.until("ready")
        answers, asking = ask(url)
        s.process.send_signal(signal.SIGTERM)
        assert wait_until(lambda: httpx.get(f"{url}/health").json()["status"] == "draining")
        os.kill(engine, signal.SIGKILL)
        asking.join()
        assert answers[0].status_code == 500
        assert s.until("error").startswith("EngineError the engine died: ")
        assert s.process.wait(20) == 2


def test_a_taken_port_is_told_before_anything_starts():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with server(section={"port": port}) as s:
            told = s.until("error")
            assert told.startswith(f"ConfigError port {port} on 127.0.0.1 is taken")
            assert not any(line.startswith("engine") for line in s.lines)


def test_addresses_that_cannot_be_bound_are_named():
    with pytest.raises(ConfigError, match="cannot be resolved"):
        bind("no.such.host.invalid", 0)
    with pytest.raises(ConfigError, match="cannot listen on 192.0.2.1"):
        bind("192.0.2.1", 0)
    with bind("127.0.0.1", 0) as listener:
        assert listener.getsockname()[1] > 0


async def answer_ok(scope, receive, send):
    del scope, receive
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


@pytest.mark.parametrize(("num_idle", "status"), [(0, 200), (2, 200), (3, 503)])
def test_connections_have_a_limit(num_idle, status):
    async def body():
        listener = bind("127.0.0.1", 0)
        address = listener.getsockname()
        one = uvicorn.Server(http_config(answer_ok, max_connections=3))
        serving = asyncio.create_task(one._serve([listener]))
        idle = [await asyncio.open_connection(*address) for _ in range(num_idle)]
        while len(one.server_state.connections) < num_idle:
            await asyncio.sleep(0.001)
        async with httpx.AsyncClient() as client:
            assert (await client.get(f"http://127.0.0.1:{address[1]}/")).status_code == status
        for _, writer in idle:
            writer.close()
        one.should_exit = True
        await serving

    asyncio.run(asyncio.wait_for(body(), 30))
    assert http_config(answer_ok).limit_concurrency == MAX_CONNECTIONS + 1


def test_a_killed_server_leaves_no_engine():
    with server(load_s=60) as s:
        engine = int(s.until("engine"))
        s.process.kill()
        assert wait_until(lambda: not is_alive(engine), timeout_s=5)


def test_an_api_key_is_asked_for():
    with server(section={"api_keys": ("k",)}) as s:
        url = s.until("ready")
        assert httpx.get(f"{url}/v1/models").status_code == 401
        reply = httpx.get(f"{url}/v1/models", headers={"authorization": "Bearer k"})
        assert json.loads(reply.text)["data"][0]["id"] == "tiny"
