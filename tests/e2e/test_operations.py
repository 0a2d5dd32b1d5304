"""What an operator sees of a real server: its log, its keys, its end when the engine hangs or nobody listens."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.live_server import LiveServer, free_port, live_server, wait_until_ready
from support.processes import is_alive, wait_until

pytestmark = pytest.mark.xdist_group("e2e")

LONG = {"model": "demo", "prompt": "The river", "max_tokens": 1000, "ignore_eos": True, "temperature": 0}
SECRET = "PRIVATE WORDS"
PROGRAM = str(Path(sys.executable).with_name("slipstream"))


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def log_lines(server: LiveServer) -> list[dict[str, Any]]:
    """The JSON lines of the log; progress and the ready line are words."""
    return [json.loads(line) for line in server.log.read_text().splitlines() if line.startswith("{")]


def test_a_json_log_tells_of_calls_by_name_in_both_processes_and_of_the_end() -> None:
    """Its lines name calls by their ids, hold neither key nor prompt, and the drain is told of with its numbers."""
    keys = ("key-from-option", "second-key-from-option", "key-from-environment")
    options = ("--log-format", "json", "--log-level", "debug", "--max-num-seqs", "2", "--max-model-len", "1100")
    typed = [word for key in keys[:2] for word in ("--api-key", key)]
    with server_with({"SLIPSTREAM_API_KEY": keys[2]}, *options, *typed) as server:
        pids = [server.process.pid, *children(server.process.pid)]
        assert len(pids) == 2
        for pid in pids:
            shown = Path(f"/proc/{pid}/cmdline").read_bytes().decode()
            assert not any(key in shown for key in keys), "the list of processes shows a key"
        for kind in ({"authorization": f"Bearer {key}"} for key in keys):
            assert httpx.get(f"{server.base_url}/v1/models", headers=kind).status_code == 200
        assert httpx.get(f"{server.base_url}/v1/models", headers={"x-api-key": keys[1]}).status_code == 200
        refused = httpx.get(f"{server.base_url}/v1/models", headers={"x-api-key": "wrong-key"})
        assert refused.status_code == 401
        headers = {"x-api-key": keys[0], "x-request-id": "my-call"}
        body = LONG | {"prompt": [SECRET, SECRET], "max_tokens": 5}
        reply = httpx.post(f"{server.base_url}/v1/completions", json=body, headers=headers, timeout=60)
        assert (reply.status_code, reply.headers["x-request-id"]) == (200, "my-call")
        replies: list[httpx.Response] = []
        headers["x-request-id"] = "the-last"

        def ask() -> None:
            replies.append(httpx.post(f"{server.base_url}/v1/completions", json=LONG, headers=headers, timeout=60))

        asking = threading.Thread(target=ask)
        asking.start()
        assert wait_until(lambda: server.metric("vllm:num_requests_running") == 1)
        assert server.stop() == 0
        asking.join()
        assert replies[0].status_code == 200
        check_log(server, keys)


def check_log(server: LiveServer, keys: tuple[str, ...]) -> None:
    lines = log_lines(server)
    text = server.log.read_text()
    assert not any(secret in text for secret in (*keys, "PRIVATE", "wrong-key"))
    assert all({"time", "level", "process", "logger", "message"} <= set(line) for line in lines)
    ends = {line["request_id"]: line for line in lines if line["logger"] == "slipstream.access"}
    mine = ends["my-call"]
    assert (mine["status"], mine["num_requests"], mine["completion_tokens"]) == (200, 2, 10)
    assert (mine["finish_reason"], mine["client_gone"], mine["path"]) == ("length", False, "/v1/completions")
    assert mine["queue_s"] >= 0
    assert mine["prefill_s"] > 0
    assert mine["decode_s"] > 0
    assert mine["acceptance_length"] >= 1
    assert mine["duration_s"] >= mine["decode_s"]
    inside = {line["request_id"] for line in lines if line["process"] == "engine" and "request_id" in line}
    assert sum(id_.startswith("my-call-") for id_ in inside) == 2
    assert 401 in {line["status"] for line in ends.values()}
    stopping = [line for line in lines if line["message"].startswith("stopping")]
    assert [(line["num"], line["within_s"]) for line in stopping] == [(1, 30.0)]
    assert lines.index(stopping[0]) < lines.index(ends["the-last"]), "the drained call ends in a line too"
    assert ends["the-last"]["completion_tokens"] == 1000


@contextlib.contextmanager
def server_with(variables: dict[str, str], *options: str) -> Iterator[LiveServer]:
    """A server with variables in its environment."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        with live_server("demo", *options) as server:
            yield server
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def test_an_engine_that_hangs_is_told_of_and_ends_the_server() -> None:
    with live_server("demo", "--max-num-seqs", "2", "--engine-timeout-s", "1") as server:
        (engine,) = children(server.process.pid)
        with httpx.stream("POST", f"{server.base_url}/v1/completions", json=LONG | {"stream": True}, timeout=60) as one:
            lines = one.iter_lines()
            next(lines)
            os.kill(engine, signal.SIGSTOP)
            rest = [line for line in lines if line]
        errors = [line for line in rest if '"error"' in line]
        assert errors == rest[-1:], "one error, and nothing after it"
        assert "hangs" in errors[0]
        health = httpx.get(f"{server.base_url}/health", timeout=5)
        assert (health.status_code, health.json()["status"]) == (503, "dead")
        assert "said nothing for" in health.json()["reason"]
        assert httpx.post(f"{server.base_url}/v1/completions", json=LONG, timeout=5).status_code == 503
        assert server.process.wait(30) == 2
        assert not is_alive(engine)
        log = server.log.read_text()
        assert log.count("hangs") == 1, log
        assert "Traceback" not in log


def test_an_idle_server_says_that_it_stops_and_nothing_of_requests() -> None:
    with live_server("demo", "--max-num-seqs", "2") as server:
        (engine,) = children(server.process.pid)
        os.kill(engine, signal.SIGSTOP)
        assert httpx.get(f"{server.base_url}/health", timeout=5).status_code == 200, "an idle engine owes no news"
        os.kill(engine, signal.SIGCONT)
        assert server.stop() == 0
        log = server.log.read_text()
        assert "stopping: no request is in flight" in log
        assert "requests in flight may end" not in log


@pytest.mark.parametrize("closed", ["before", "later"])
def test_a_server_goes_on_when_nobody_reads_its_output(closed: str, tmp_path: Path) -> None:
    """Standard output and error closed from the start, or a pipe whose reader leaves at once."""
    port = free_port()
    command = [PROGRAM, "serve", "demo", "--port", str(port), "--max-num-seqs", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if closed == "before":
        shell = ["sh", "-c", 'exec "$@" >&- 2>&-', "sh", *command]
        process = subprocess.Popen(shell, env=environment)
    else:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
    (tmp_path / "no-log").touch()
    server = LiveServer(f"http://127.0.0.1:{port}", process, tmp_path / "no-log")
    try:
        wait_until_ready(server)
        reply = httpx.post(f"{server.base_url}/v1/completions", json=LONG | {"max_tokens": 3}, timeout=30)
        assert reply.status_code == 200
        assert httpx.get(f"{server.base_url}/nothing").status_code == 404
        assert server.stop() == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def test_explain_shows_where_keys_come_from_and_not_the_keys(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# ours\nkey-from-file\n")
    command = [PROGRAM, "explain", "demo", "--api-key", "key-from-option", "--api-key-file", str(file)]
    environment = {**os.environ, "SLIPSTREAM_API_KEY": "key-from-environment"}
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=environment).stdout
    assert "key-from" not in shown
    assert f"from --api-key, SLIPSTREAM_API_KEY, the file {file}" in " ".join(shown.split())
