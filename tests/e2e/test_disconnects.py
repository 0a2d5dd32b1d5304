"""A thousand clients that leave at a random moment cost nothing: no request runs on, every page comes back."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Iterator

import httpx
import pytest

from support.live_server import LiveServer, live_server

pytestmark = [pytest.mark.xdist_group("e2e"), pytest.mark.timeout(600)]

NUM_CLIENTS = 1000
NUM_AT_ONCE = 24


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with live_server("demo", "--max-num-seqs", "8") as one:
        yield one


async def leave_at_random(server: LiveServer, rng: random.Random, number: int) -> int:
    """Open a raw connection, send all or part of a request, read a little or nothing, and go."""
    host, port = server.base_url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    body = json.dumps(
        {
            "model": "demo",
            "messages": [
                {"role": "user", "content": f"Tell me about place number {number}. " * rng.choice([1, 1, 12])}
            ],
            "max_tokens": 400,
            "ignore_eos": True,
            "stream": rng.random() < 0.7,
        }
    ).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    message = (head + f"content-length: {len(body)}\r\n\r\n").encode() + body
    if rng.random() < 0.05:
        message = message[: rng.randrange(len(message))]
    num_read = 0
    try:
        writer.write(message)
        await writer.drain()
        for _ in range(rng.randrange(4)):
            num_read += len(await asyncio.wait_for(reader.read(rng.choice([1, 200, 2000])), timeout=rng.random() * 0.3))
    except (TimeoutError, ConnectionError):
        pass
    if rng.random() < 0.5:
        writer.transport.abort()
    else:
        writer.close()
    return num_read


async def all_leave(server: LiveServer) -> int:
    rng = random.Random(20)
    gate = asyncio.Semaphore(NUM_AT_ONCE)

    async def one(number: int) -> int:
        async with gate:
            return await leave_at_random(server, rng, number)

    return sum(await asyncio.gather(*(one(number) for number in range(NUM_CLIENTS))))


def test_a_thousand_disconnects_leave_nothing_behind(server: LiveServer) -> None:
    num_read = asyncio.run(all_leave(server))
    assert num_read > 10_000, "hardly any client was answered: the test would prove little"
    deadline = time.monotonic() + 60
    names = ("vllm:num_requests_running", "vllm:num_requests_waiting", "slipstream:streams")
    while any(server.metric(name) for name in names):
        assert time.monotonic() < deadline, {name: server.metric(name) for name in names}
        time.sleep(0.2)
    num_pages = server.metric("slipstream:free_pages") + server.metric("slipstream:cached_pages")
    info = next(key for key in server.metrics() if key.startswith("vllm:cache_config_info"))
    num_owned = int(info.split('num_gpu_blocks="')[1].split('"')[0])
    assert num_pages == num_owned - 1, "every page but the null page"
    assert server.metric("vllm:kv_cache_usage_perc") == 0
    reply = httpx.post(
        f"{server.base_url}/v1/completions",
        json={"model": "demo", "prompt": "The river", "max_tokens": 5, "temperature": 0},
        timeout=30,
    )
    assert reply.status_code == 200
