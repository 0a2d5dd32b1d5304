"""Three times more than a server takes, readers that do not read, and logits that are no numbers."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from support.broken_token import BROKEN_TOKEN, make_broken_checkpoint
from support.live_server import LiveServer, live_server
from support.processes import wait_until

pytestmark = pytest.mark.xdist_group("e2e")

NUM_ROWS, NUM_WAITING = 2, 2
CAPACITY = NUM_ROWS + NUM_WAITING
NUM_OFFERED = 3 * CAPACITY
PLACES = ("river", "market", "harbour", "library", "mountain")


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    options = ("--max-num-seqs", str(NUM_ROWS), "--max-queue", str(NUM_WAITING))
    with live_server("demo", *options, "--kv-cache-bytes", "24000000") as one:
        yield one


class Asked(NamedTuple):
    """A request that always has the same answer: greedy, or with a seed."""

    path: str
    fields: dict[str, Any]

    @classmethod
    def number(cls, index: int, max_tokens: int = 48) -> Asked:
        drawn = {"temperature": 0} if index % 2 else {"temperature": 0.9, "seed": index, "top_p": 0.95}
        fields = {"model": "demo", "max_tokens": max_tokens, "ignore_eos": True, **drawn}
        place = PLACES[index % len(PLACES)]
        if index % 3:
            return cls("/v1/completions", fields | {"prompt": f"The {place} number {index} is"})
        question = [{"role": "user", "content": f"Tell me about the {place} number {index}."}]
        return cls("/v1/chat/completions", fields | {"messages": question})


class Reply(NamedTuple):
    """What came back, and when it was complete among all replies."""

    status: int
    text: str
    retry_after: str | None
    place: int


class Crowd:
    """Many clients of one server at once; their replies are counted as they come."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self._num_done = 0

    async def ask(self, asked: Asked, *, stream: bool) -> Reply:
        body = asked.fields | {"stream": stream}
        async with self._client.stream("POST", asked.path, json=body) as reply:
            raw = (await reply.aread()).decode()
        self._num_done += 1
        text = "" if reply.status_code != 200 else streamed_text(raw) if stream else whole_text(json.loads(raw))
        return Reply(reply.status_code, text, reply.headers.get("retry-after"), self._num_done)


def whole_text(answer: dict[str, Any]) -> str:
    choice = answer["choices"][0]
    return choice["text"] if "text" in choice else choice["message"]["content"] or ""


def streamed_text(raw: str) -> str:
    events = [block.removeprefix("data: ") for block in raw.split("\n\n") if block]
    assert events.pop() == "[DONE]", raw[-300:]
    choices = [choice for event in events for choice in json.loads(event)["choices"]]
    return "".join(c["text"] if "text" in c else c["delta"].get("content") or "" for c in choices)


@asynccontextmanager
async def client_of(server: LiveServer) -> AsyncIterator[httpx.AsyncClient]:
    limits = httpx.Limits(max_connections=100)
    async with httpx.AsyncClient(base_url=server.base_url, timeout=120, limits=limits) as client:
        yield client


async def check_health(client: httpx.AsyncClient, until: asyncio.Event) -> int:
    """Ask for the health until told to stop; return how often it was good."""
    num_good = 0
    while not until.is_set():
        reply = await client.get("/health")
        assert reply.status_code == 200, reply.text
        num_good += 1
        await asyncio.sleep(0.02)
    return num_good


def assert_at_rest(server: LiveServer) -> None:
    """No request is left, and every page but the null page is free or kept for reuse."""
    names = ("vllm:num_requests_running", "vllm:num_requests_waiting", "slipstream:streams")
    assert wait_until(lambda: not any(server.metric(name) for name in names)), server.metrics()
    info = next(key for key in server.metrics() if key.startswith("vllm:cache_config_info"))
    num_pages = int(info.split('num_gpu_blocks="')[1].split('"')[0])
    assert server.metric("slipstream:free_pages") + server.metric("slipstream:cached_pages") == num_pages - 1


def test_three_times_the_capacity_is_turned_away_at_once_and_costs_the_accepted_nothing(server: LiveServer) -> None:
    """Streams and whole answers mixed, in two waves; what is accepted has the text that it has alone."""
    rejections = server.metric("vllm:admission_rejections_total")

    async def body() -> int:
        async with client_of(server) as client:
            alone = [await Crowd(client).ask(Asked.number(index), stream=False) for index in range(NUM_OFFERED)]
            assert {reply.status for reply in alone} == {200}
            assert all(len(reply.text) > 30 for reply in alone)
            over = asyncio.Event()
            health = asyncio.create_task(check_health(client, over))
            num_refused = 0
            for wave in range(2):
                crowd = Crowd(client)
                replies = await asyncio.gather(
                    *(crowd.ask(Asked.number(i), stream=(i + wave) % 2 == 0) for i in range(NUM_OFFERED))
                )
                accepted = [(reply, alone[i]) for i, reply in enumerate(replies) if reply.status == 200]
                refused = [reply for reply in replies if reply.status == 503]
                assert len(accepted) + len(refused) == NUM_OFFERED, {reply.status for reply in replies}
                assert len(accepted) == CAPACITY
                assert all(reply.text == reference.text for reply, reference in accepted)
                assert all(int(reply.retry_after or 0) >= 1 for reply in refused)
                first_end = min(reply.place for reply, _ in accepted)
                assert all(reply.place < first_end for reply in refused), "a refusal waited for somebody's answer"
                num_refused += len(refused)
            over.set()
            assert await health > 3
            return num_refused

    num_refused = asyncio.run(body())
    assert server.metric("vllm:admission_rejections_total") - rejections == num_refused
    assert_at_rest(server)


def stuck_reader(server: LiveServer, number: int) -> socket.socket:
    """Open a stream and read none of it, with as little room on the way as the system allows."""
    host, port = server.base_url.removeprefix("http://").split(":")
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
    one.connect((host, int(port)))
    asked = {"model": "demo", "prompt": f"Place {number}", "max_tokens": 500, "ignore_eos": True, "stream": True}
    payload = json.dumps(asked | {"logprobs": 5, "temperature": 0}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(payload)}\r\n"
    one.sendall(f"{head}content-type: application/json\r\n\r\n".encode() + payload)
    return one


def test_readers_that_read_nothing_block_nobody_and_get_everything_later(server: LiveServer) -> None:
    readers = [stuck_reader(server, number) for number in range(NUM_ROWS)]
    assert wait_until(lambda: server.metric("slipstream:streams") == NUM_ROWS)

    async def others() -> None:
        async with client_of(server) as client:
            replies = [await Crowd(client).ask(Asked.number(i, 20), stream=bool(i % 2)) for i in range(4)]
            assert {reply.status for reply in replies} == {200}

    asyncio.run(others())
    # The engine has long gone on: a reader holds no row and no page, only what it has not read.
    assert wait_until(lambda: server.metric("vllm:num_requests_running") == 0, timeout_s=60)
    assert_at_rest(server)
    for reader in readers:
        reader.settimeout(60)
        got = b""
        while not got.endswith(b"0\r\n\r\n"):
            piece = reader.recv(1 << 16)
            assert piece, "the server closed before the end"
            got += piece
        assert b"data: [DONE]\n\n" in got
        assert got.count(b'"token_logprobs"') > 100
        reader.close()


def test_a_prompt_with_nan_logits_fails_alone_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """One request in the middle of others: it fails, they do not change, and its pages are not reused."""
    folder = make_broken_checkpoint(tmp_path / "broken")
    # Short chunks: pages of the prompt's beginning are published before its end turns out to be broken.
    chunks = ("--prefill-chunk-tokens", "32")
    with live_server(
        str(folder), "--drafter", "ngram", "--served-model-name", "demo", "--max-num-seqs", "4", *chunks
    ) as one:

        async def body() -> None:
            async with client_of(one) as client:
                tokens = (await client.post("/tokenize", json={"prompt": "A long story of rivers. " * 12})).json()
                prefix = tokens["tokens"]
                assert BROKEN_TOKEN not in prefix
                bad = {"model": "demo", "prompt": [*prefix, BROKEN_TOKEN], "max_tokens": 8, "temperature": 0}
                alone = [(await Crowd(client).ask(Asked.number(i), stream=False)).text for i in range(3)]
                crowd = Crowd(client)
                others = [asyncio.ensure_future(crowd.ask(Asked.number(i), stream=i != 1)) for i in range(3)]
                while one.metric("vllm:num_requests_running") < 3:
                    await asyncio.sleep(0.01)
                whole = await client.post("/v1/completions", json=bad)
                assert (whole.status_code, whole.json()["error"]["type"]) == (500, "internal_error")
                assert "not finite" in whole.json()["error"]["message"]
                streamed = await client.post("/v1/completions", json=bad | {"stream": True})
                events = [block for block in streamed.text.split("\n\n") if block]
                assert (streamed.status_code, len(events)) == (200, 1)
                assert "not finite" in json.loads(events[0].removeprefix("data: "))["error"]["message"]
                assert [(await other).text for other in others] == alone
                for num_cached in (False, True):
                    good = {**bad, "prompt": prefix}
                    answer = (await client.post("/v1/completions", json=good)).json()
                    details = answer["usage"]["prompt_tokens_details"]
                    assert bool(details["cached_tokens"]) is num_cached, "pages of a failed request are forgotten"
                assert (await client.get("/health")).status_code == 200

        asyncio.run(body())
        assert one.metric("vllm:corrupted_requests_total") == 2
        failed = 'vllm:request_success_total{engine="0",finished_reason="error",model_name="demo"}'
        assert one.metric(failed) == 2
        assert_at_rest(one)
        log = one.log.read_text()
        assert log.count("request failed") == 2
        assert "engine:slipstream.engine" in log
