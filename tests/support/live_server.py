"""A real server in a process of its own, as a user starts it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx


@dataclass(frozen=True)
class LiveServer:
    """Where a server listens, and its process."""

    base_url: str
    process: subprocess.Popen[bytes]
    log: Path

    def metrics(self) -> dict[str, float]:
        """Sample lines of /metrics, by name with labels."""
        text = httpx.get(f"{self.base_url}/metrics", timeout=10).text
        lines = (line for line in text.splitlines() if line and not line.startswith("#"))
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines}

    def metric(self, name: str) -> float:
        """Sum of one metric over its label sets."""
        pattern = re.compile(rf"^{re.escape(name)}(\{{.*)?$")
        found = [value for key, value in self.metrics().items() if pattern.match(key)]
        assert found, f"/metrics has no {name}"
        return sum(found)

    def stop(self, timeout_s: float = 30) -> int:
        """End the server as an operator does, and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_s)


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextlib.contextmanager
def live_server(*arguments: str, ready: bool = True) -> Iterator[LiveServer]:
    """Start `slipstream serve` on a free port; end it afterwards.

    Args:
        arguments: after `serve`, without host and port.
        ready: wait until /health answers 200.
    """
    port = free_port()
    log = Path(tempfile.mkstemp(prefix="slipstream-serve-", suffix=".log")[1])
    command = [str(Path(sys.executable).with_name("slipstream")), "serve", *arguments]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    with log.open("wb") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=sink, env={**os.environ, "OMP_NUM_THREADS": "1"})
    server = LiveServer(f"http://127.0.0.1:{port}", process, log)
    try:
        if ready:
            wait_until_ready(server)
        yield server
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        log.unlink(missing_ok=True)


def wait_until_ready(server: LiveServer, timeout_s: float = 90) -> None:
    """Wait for the first 200 of /health; fail with the server's log when it ends before."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        assert server.process.poll() is None, f"the server ended: {server.log.read_text()}"
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{server.base_url}/health", timeout=2).status_code == 200:
                return
        time.sleep(0.1)
    raise AssertionError(f"not ready after {timeout_s} s: {server.log.read_text()}")
