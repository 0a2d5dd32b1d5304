"""Bodies up to the limit are read; longer, encoded or foreign ones are refused."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest
from fastapi import Request
from starlette.requests import ClientDisconnect

from slipstream.base.errors import OverloadedError, RequestError
from slipstream.server import body as body_module
from slipstream.server.body import LONG_BODY_BYTES, BodyBudget, read_object
from slipstream.server.errors import RefusedRequest
from slipstream.server.protocol.parse import parse_json
from support.http_world import error_of, live_world, run, world

BODY = json.dumps({"model": "tiny", "prompt": "ABC"}).encode()


@pytest.mark.parametrize("kind", ["application/json", "application/json; charset=utf-8", "Application/JSON", None])
def test_json_is_read(kind):
    async def body():
        async with world() as w:
            headers = {} if kind is None else {"content-type": kind}
            assert (await w.client.post("/v1/completions", content=BODY, headers=headers)).status_code == 200

    run(body)


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", "json"])
def test_another_content_type_is_a_400(kind):
    async def body():
        async with world() as w:
            reply = await w.client.post("/v1/completions", content=BODY, headers={"content-type": kind})
            assert "application/json" in error_of(reply, 400)["message"]

    run(body)


def test_an_encoded_body_is_a_400():
    async def body():
        async with world() as w:
            headers = {"content-type": "application/json", "content-encoding": "gzip"}
            reply = await w.client.post("/v1/completions", content=BODY, headers=headers)
            assert "gzip" in error_of(reply, 400)["message"]

    run(body)


@pytest.mark.parametrize("chunked", [False, True])
def test_the_limit_is_exact(chunked):
    async def body():
        async with world(max_body_bytes=len(BODY)) as w:
            for content, status in ((BODY, 200), (BODY + b" ", 413)):

                async def pieces(whole=content):
                    for start in range(0, len(whole), 7):
                        yield whole[start : start + 7]

                sent = pieces() if chunked else content
                reply = await w.client.post(
                    "/v1/completions", content=sent, headers={"content-type": "application/json"}
                )
                assert reply.status_code == status
                if status == 413:
                    assert error_of(reply, 413)["code"] == "body_too_long"

    run(body)


@pytest.mark.parametrize(("length", "status"), [(b"0" * 5000 + b"%d", 200), (b"9" * 18, 413)])
def test_a_declared_length_of_many_digits(length, status):
    async def body():
        async with live_world() as w:
            reader, writer = await asyncio.open_connection(*w.url.removeprefix("http://").split(":"))
            declared = length % len(BODY) if b"%d" in length else length
            head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: " + declared + b"\r\n\r\n"
            writer.write(head + BODY)
            assert (await reader.readline()).startswith(b"HTTP/1.1 %d" % status)
            writer.close()

    run(body)


def test_a_long_body_on_a_socket_gets_its_answer():
    """The client is still sending when it is refused, and must see the answer all the same."""

    async def body():
        async with live_world(max_body_bytes=100_000) as w:
            content = json.dumps({"prompt": "A" * 20_000_000})
            reply = await w.client.post(
                "/v1/completions", content=content, headers={"content-type": "application/json"}
            )
            error_of(reply, 413)
            assert (await w.complete()).status_code == 200

    run(body)


def test_all_bodies_together_have_a_limit():
    budget = BodyBudget(10)
    budget.take(6)
    budget.take(4)
    with pytest.raises(OverloadedError, match="10 bytes are being read"):
        budget.take(1)
    budget.give_back(4)
    budget.take(4)


def read(pieces, budget, max_body_bytes=100):
    """Read a body that arrives in pieces; after the last of them the client is gone, unless it is the end."""
    left = [{"type": "http.request", "body": piece, "more_body": more} for piece, more in pieces]

    async def receive():
        return left.pop(0) if left else {"type": "http.disconnect"}

    async def apart(work, num_chars):
        raise AssertionError("a short body is decoded where it is")

    return asyncio.run(read_object(Request({"type": "http", "headers": []}, receive), max_body_bytes, budget, apart))


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_from_where_on_a_body_is_decoded_apart(extra):
    content = b'{"a":"' + b"x" * (LONG_BODY_BYTES + extra - 8) + b'"}'
    asked = []

    async def receive():
        return {"type": "http.request", "body": content, "more_body": False}

    async def apart(work, num_chars):
        asked.append(num_chars)
        return work()

    request = Request({"type": "http", "headers": []}, receive)
    read = asyncio.run(read_object(request, len(content), BodyBudget(), apart))
    assert len(read["a"]) == LONG_BODY_BYTES + extra - 8
    assert asked == ([len(content)] if extra > 0 else [])


def test_other_streams_go_on_while_a_long_body_is_decoded(monkeypatch):
    """The long body is decoded only after another stream has come to its end: by the order of events, not by time."""

    async def body():
        events, may_decode = [], threading.Event()

        def slow_parse(content):
            if len(content) > LONG_BODY_BYTES:
                events.append("decoding")
                assert may_decode.wait(30)
                events.append("decoded")
            return parse_json(content)

        monkeypatch.setattr(body_module, "parse_json", slow_parse)
        async with live_world(step_s=0.001) as w:
            long = b'{"prompt": "' + b"A" * (2 * LONG_BODY_BYTES) + b'"}'
            headers = {"content-type": "application/json"}
            asking = asyncio.ensure_future(w.client.post("/v1/completions", content=long, headers=headers))
            while not events:
                await asyncio.sleep(0.001)
            streamed = await w.complete(stream=True, max_tokens=100, ignore_eos=True)
            assert streamed.text.endswith("data: [DONE]\n\n")
            assert (await w.client.get("/health")).status_code == 200
            events.append("streamed")
            may_decode.set()
            error_of(await asking, 400)
        assert events == ["decoding", "streamed", "decoded"]

    run(body)


def test_a_long_body_that_is_no_json_is_a_400():
    async def body():
        async with live_world() as w:
            for content in (
                b"[" * 2 * LONG_BODY_BYTES,
                b'{"prompt": "' + b"A" * 2 * LONG_BODY_BYTES,
                b'{"a":' * 999_999,
            ):
                reply = await w.client.post("/v1/completions", content=content)
                assert "not JSON" in error_of(reply, 400)["message"]

    run(body)


def test_a_body_counts_only_while_it_is_read():
    budget = BodyBudget(10)
    for _ in range(5):
        assert read([(b'{"a":', True), (b"1}", False)], budget) == {"a": 1}
        assert budget.num_bytes == 0


@pytest.mark.parametrize(
    ("pieces", "max_body_bytes", "error"),
    [
        ([(b'{"a":1', True), (b"23456}", False)], 100, OverloadedError),
        ([(b'{"a":1', True), (b"2}", False)], 7, RefusedRequest),
        ([(b'{"a":1', True)], 100, ClientDisconnect),
        ([(b'{"a":', False)], 100, RequestError),
    ],
)
def test_a_body_that_is_not_read_to_its_end_gives_its_bytes_back(pieces, max_body_bytes, error):
    budget = BodyBudget(10)
    with pytest.raises(error):
        read(pieces, budget, max_body_bytes)
    assert budget.num_bytes == 0


def test_a_server_that_reads_too_much_says_so():
    async def body():
        async with world() as w:
            budgets = []
            take = BodyBudget.take

            def full(self, num_bytes):
                budgets.append(self)
                self._max_bytes = 3
                take(self, num_bytes)

            BodyBudget.take = full
            try:
                reply = await w.client.post("/v1/completions", content=BODY)
                other = await w.client.post("/tokenize", content=BODY)
            finally:
                BodyBudget.take = take
            error_of(other, 503)
            assert "are being read" in error_of(reply, 503)["message"]
            assert reply.headers["retry-after"]
            assert budgets[0] is budgets[1], "all routes share one budget"

    run(body)
