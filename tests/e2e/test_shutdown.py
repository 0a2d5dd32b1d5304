"""The end of a server: drained on SIGTERM, and nothing left when it is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import httpx
import pytest

from support.live_server import live_server

pytestmark = pytest.mark.xdist_group("e2e")


def child_processes(pid: int) -> list[int]:
    found: list[int] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == pid:
            found.append(int(stat.parent.name))
    return found


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_sigterm_lets_a_running_answer_finish_and_takes_no_new_one() -> None:
    with live_server("demo", "--max-num-seqs", "2") as server:
        replies: list[httpx.Response] = []
        body = {"model": "demo", "prompt": "The river", "max_tokens": 1000, "ignore_eos": True, "temperature": 0}

        def ask() -> None:
            replies.append(httpx.post(f"{server.base_url}/v1/completions", json=body, timeout=60))

        thread = threading.Thread(target=ask)
        thread.start()
        while server.metric("vllm:num_requests_running") < 1:
            time.sleep(0.02)
        server.process.send_signal(signal.SIGTERM)
        while httpx.get(f"{server.base_url}/health", timeout=5).json()["status"] != "draining":
            time.sleep(0.02)
        refused = httpx.post(f"{server.base_url}/v1/completions", json=body, timeout=60)
        assert not replies, "the running answer ended too early for this test"
        assert refused.status_code == 503
        assert "shutting down" in refused.json()["error"]["message"]
        assert int(refused.headers["retry-after"]) >= 1
        thread.join()
        assert replies[0].status_code == 200
        assert replies[0].json()["usage"]["completion_tokens"] == 1000
        assert server.process.wait(30) == 0


def test_a_killed_server_leaves_no_engine() -> None:
    with live_server("demo", "--max-num-seqs", "2") as server:
        children = child_processes(server.process.pid)
        assert children, "the engine is a process of its own"
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
        deadline = time.monotonic() + 10
        while any(is_running(pid) for pid in children):
            assert time.monotonic() < deadline, f"still there after ten seconds: {children}"
            time.sleep(0.1)


def test_a_dead_engine_is_reported_and_ends_the_server() -> None:
    with live_server("demo", "--max-num-seqs", "2") as server:
        engine = child_processes(server.process.pid)[0]
        body = {"model": "demo", "prompt": "The river", "max_tokens": 1500, "ignore_eos": True, "stream": True}
        with httpx.stream("POST", f"{server.base_url}/v1/completions", json=body, timeout=60) as reply:
            lines = reply.iter_lines()
            next(lines)
            os.kill(engine, signal.SIGKILL)
            rest = [line for line in lines if line]
        errors = [line for line in rest if '"error"' in line]
        assert errors == rest[-1:], "one error, and nothing after it"
        assert "died" in errors[0]
        health = httpx.get(f"{server.base_url}/health", timeout=5)
        assert (health.status_code, health.json()["status"]) == (503, "dead")
        assert httpx.post(f"{server.base_url}/v1/completions", json=body, timeout=5).status_code == 503
        assert server.process.wait(30) == 2
        log = server.log.read_text()
        assert log.count("SIGKILL") == 1, log
        assert "Traceback" not in log


def test_a_taken_port_is_one_clear_line() -> None:
    import sys

    with live_server("demo", "--max-num-seqs", "2") as server:
        port = server.base_url.rsplit(":", 1)[1]
        command = [str(Path(sys.executable).with_name("slipstream")), "serve", "demo", "--port", port]
        second = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert second.returncode != 0
        assert port in second.stderr
        assert "Traceback" not in second.stderr
