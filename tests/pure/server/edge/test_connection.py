"""A connection that leaves something unfinished is closed in time, and nobody else notices."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import asynccontextmanager

import pytest
import uvicorn

from slipstream.server.edge.connection import ConnectionLimits
from slipstream.server.serve import bind, http_config
from support.http_world import run

QUICK = ConnectionLimits(max_head_bytes=4096, head_s=0.2, body_s=0.2, body_bytes_per_s=10_000)


class App:
    """Reads the body, waits for its gate (before, if it is busy), and answers with the body's length."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.num_begun = 0
        self.num_gone = 0
        self.is_busy = False

    async def __call__(self, scope, receive, send) -> None:
        self.num_begun += 1
        if self.is_busy:
            await self.gate.wait()
        length, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.num_gone += 1
                return
            length += len(message["body"])
            more = message["more_body"]
        waiting = asyncio.ensure_future(self.gate.wait())
        leaving = asyncio.ensure_future(receive())
        done, _ = await asyncio.wait({waiting, leaving}, return_when=asyncio.FIRST_COMPLETED)
        for task in (waiting, leaving):
            task.cancel()
        if waiting not in done:
            self.num_gone += 1
            return
        body = b"%d" % length
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def serving(limits: ConnectionLimits = QUICK, **options):
    app = App()
    listener = bind("127.0.0.1", 0)
    one = uvicorn.Server(http_config(app, limits=limits, **options))
    task = asyncio.create_task(one._serve([listener]))
    try:
        yield app, listener.getsockname()
    finally:
        app.gate.set()
        one.should_exit = True
        await task


async def answer(address, *pieces: bytes, pause_s: float = 0.0, half_close: bool = False) -> bytes:
    """Send pieces and return everything that comes until the server closes."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        for piece in pieces:
            if writer.transport.is_closing():
                break
            writer.write(piece)
            await asyncio.sleep(pause_s)
        if half_close:
            writer.write_eof()
        return await asyncio.wait_for(reader.read(), 10)
    except (ConnectionResetError, BrokenPipeError):
        return b"reset"
    finally:
        writer.close()


def post(length: int, body: bytes = b"", more: bytes = b"") -> bytes:
    return b"POST /x HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n" % length + more + b"\r\n" + body


GET = b"GET /x HTTP/1.1\r\nhost: x\r\n\r\n"
CLOSE = b"GET /x HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"


def refusal(got: bytes, status: int) -> str:
    """The message of an answer made below the application; its shape is checked."""
    head, _, body = got.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), got
    lines = head.lower().split(b"\r\n")
    assert b"connection: close" in lines
    assert sum(line.startswith(b"x-request-id: req-") for line in lines) == 1
    assert b"content-length: %d" % len(body) in lines
    return json.loads(body)["error"]["message"]


def test_a_connection_that_says_nothing_is_closed():
    async def body():
        async with serving() as (app, address):
            assert await answer(address) == b""
            assert app.num_begun == 0

    run(body)


@pytest.mark.parametrize("dripping", [False, True])
def test_a_head_that_does_not_end_is_refused(dripping):
    """Single bytes do not win time."""

    async def body():
        async with serving() as (app, address):
            pieces = [b"GET /x HTTP/1.1\r\nhost: x\r\n"] + [b"a"] * 100 * dripping
            got = await answer(address, *pieces, pause_s=0.01)
            assert got == b"reset" or "not complete" in refusal(got, 408)
            assert app.num_begun == 0

    run(body)


def test_a_second_head_on_a_connection_is_bounded_too():
    async def body():
        async with serving() as (app, address):
            got = await answer(address, GET + b"GET /y")
            assert got.startswith(b"HTTP/1.1 200 OK")
            assert b"HTTP/1.1 408" in got
            assert app.num_begun == 1

    run(body)


def test_a_body_that_stops_is_refused_and_the_application_hears_of_it():
    async def body():
        async with serving() as (app, address):
            assert "3 bytes have arrived" in refusal(await answer(address, post(10, b"abc")), 408)
            await asyncio.sleep(0.01)
            assert (app.num_begun, app.num_gone) == (1, 1)

    run(body)


def test_a_body_that_drips_is_refused_and_one_that_flows_is_read():
    async def body():
        async with serving() as (_, address):
            slow = await answer(address, post(100), *[b"a"] * 60, pause_s=0.01)
            assert slow == b"reset" or "too slowly" in refusal(slow, 408)
            pieces = [b"a" * 1000] * 40  # takes twice what a body may take, at ten times the least rate
            got = await answer(address, post(40_000, more=b"connection: close\r\n"), *pieces, pause_s=0.01)
            assert got.endswith(b"\r\n\r\n40000")

    run(body)


def test_an_application_that_does_not_read_is_not_the_clients_fault():
    async def body():
        async with serving() as (app, address):
            app.gate.clear()
            app.is_busy = True
            sending = asyncio.ensure_future(
                answer(address, post(2_000_000, b"a" * 2_000_000, more=b"connection: close\r\n"))
            )
            await asyncio.sleep(0.7)
            assert not sending.done()
            app.gate.set()
            assert (await sending).endswith(b"\r\n\r\n2000000")

    run(body)


@pytest.mark.parametrize(("unread", "is_closed"), [(50_000, False), (2_000_000, True)])
def test_a_body_that_goes_on_after_its_answer_is_read_for_a_while(unread, is_closed):
    async def refuse(scope, receive, send):
        await send({"type": "http.response.start", "status": 413, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    async def body():
        listener = bind("127.0.0.1", 0)
        one = uvicorn.Server(http_config(refuse, limits=ConnectionLimits(max_unread_bytes=1_000_000)))
        task = asyncio.create_task(one._serve([listener]))
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(post(10**9))
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 413")
        reading = asyncio.ensure_future(reader.read())
        for _ in range(unread // 10_000):
            writer.write(b"a" * 10_000)
            await asyncio.sleep(0)
        await asyncio.wait({reading}, timeout=5 if is_closed else 0.2)
        assert reading.done() == is_closed
        writer.transport.abort()
        await asyncio.gather(reading, return_exceptions=True)
        one.should_exit = True
        await task

    run(body)


def test_a_long_answer_is_not_cut_by_the_time_for_requests():
    async def body():
        async with serving() as (app, address):
            app.gate.clear()
            asking = asyncio.ensure_future(answer(address, CLOSE))
            behind = asyncio.ensure_future(answer(address, GET + b"GET /half"))
            await asyncio.sleep(0.7)
            assert not asking.done()
            assert not behind.done(), "half a request behind one that is answered waits for its turn"
            app.gate.set()
            assert (await asking).endswith(b"\r\n\r\n0")
            assert (await behind).startswith(b"HTTP/1.1 200")

    run(body)


@pytest.mark.parametrize("is_ended", [False, True])
@pytest.mark.parametrize("kind", ["value", "headers", "target"])
def test_a_head_that_is_too_long_is_refused(kind, is_ended):
    async def body():
        async with serving(ConnectionLimits(max_head_bytes=4096)) as (app, address):
            head = {
                "value": b"GET /x HTTP/1.1\r\nhost: x\r\na: " + b"b" * 300_000,
                "headers": b"GET /x HTTP/1.1\r\nhost: x\r\n" + b"aa: bb\r\n" * 40_000 + b"a: b",
                "target": b"GET /" + b"x" * 300_000 + b" HTTP/1.1\r\nhost: x",
            }[kind] + b"\r\n\r\n" * is_ended
            pieces = [head[start : start + 10_000] for start in range(0, len(head), 10_000)]
            got = await answer(address, *pieces)
            assert got == b"reset" or "longer than 4096 bytes" in refusal(got, 431)
            assert app.num_begun == 0

    run(body)


@pytest.mark.parametrize("size", [3000, 4000, 4096, 5000])
def test_the_length_of_a_head_is_measured_exactly(size):
    async def body():
        async with serving() as (_, address):
            fixed = len(b"/x") + len(b"host") + len(b"x") + len(b"connection") + len(b"close") + len(b"a")
            value = b"b" * (size - fixed)
            got = await answer(address, CLOSE[:-2] + b"a: " + value + b"\r\n\r\n")
            assert got.startswith(b"HTTP/1.1 200" if size <= 4096 else b"HTTP/1.1 431")

    run(body)


def test_heads_behind_each_other_do_not_add_up():
    async def body():
        async with serving() as (app, address):
            got = await answer(address, GET * 300, GET * 300 + GET[:20], GET[20:] + CLOSE)
            assert got.count(b"HTTP/1.1 200 OK") == app.num_begun == 602

    run(body)


@pytest.mark.parametrize(
    "garbage",
    [b"\x16\x03\x01\x02\x00\x01", b"hello\r\n\r\n", b"GET /x HTTP/1.1\r\n: x\r\n\r\n",
     b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
     b"GET /\x00 HTTP/1.1\r\n\r\n", b"POST /x HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
     b"POST /x HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n"],
)  # fmt: skip
def test_bytes_that_are_no_request_are_refused(garbage):
    async def body():
        async with serving() as (app, address):
            assert "Send HTTP/1.1" in refusal(await answer(address, garbage), 400)
            assert app.num_begun == 0
            assert (await answer(address, CLOSE)).startswith(b"HTTP/1.1 200")

    run(body)


def test_garbage_behind_an_answer_that_has_begun_does_not_fall_into_it():
    async def body():
        async with serving() as (_, address):

            async def stream(scope, receive, send):
                await send({"type": "http.response.start", "status": 200, "headers": []})
                await send({"type": "http.response.body", "body": b"begun", "more_body": True})
                while (await receive())["type"] != "http.disconnect":
                    pass

            listener = bind("127.0.0.1", 0)
            one = uvicorn.Server(http_config(stream, limits=QUICK))
            task = asyncio.create_task(one._serve([listener]))
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            writer.write(GET)
            await reader.readuntil(b"begun")
            writer.write(b"\x00garbage\r\n\r\n")
            assert b"HTTP" not in await asyncio.wait_for(reader.read(), 5)
            writer.close()
            one.should_exit = True
            await task
            del address

    run(body)


def test_a_client_that_leaves_with_requests_behind_the_first_ends_the_first():
    async def body():
        async with serving() as (app, address):
            app.gate.clear()
            _, writer = await asyncio.open_connection(*address)
            writer.write(GET * 3)
            while not app.num_begun:
                await asyncio.sleep(0.005)
            writer.transport.abort()
            for _ in range(200):
                if app.num_gone:
                    break
                await asyncio.sleep(0.01)
            assert (app.num_begun, app.num_gone) == (1, 1)

    run(body)


def test_http_1_0_is_answered_and_closed():
    async def body():
        async with serving() as (_, address):
            got = await answer(address, b"GET /x HTTP/1.0\r\n\r\n")
            assert b"connection: close" in got
            assert got.endswith(b"\r\n\r\n0")

    run(body)


OFFERS = {
    "h2c": b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQBAAAAAAIAAAAA\r\n",
    "websocket": b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-key: x\r\nsec-websocket-version: 13\r\n",
}


@pytest.mark.parametrize("pause", [False, True])
@pytest.mark.parametrize("offer", OFFERS)
def test_an_offer_to_change_the_protocol_is_declined_and_the_body_is_read(offer, pause, caplog):
    """Clients that would rather speak HTTP/2 offer it with their first request, whatever its method."""

    async def body():
        async with serving() as (app, address):
            first = post(5, b"", more=OFFERS[offer])
            pieces = [first, b"abcde", CLOSE] if pause else [first + b"abcde" + CLOSE]
            got = await answer(address, *pieces, pause_s=0.01)
            assert app.num_begun == got.count(b"HTTP/1.1 200 OK") == 2
            assert b"\r\n\r\n5HTTP/1.1" in got
            assert got.endswith(b"\r\n\r\n0")
            closing = post(2, b"ab", more=OFFERS[offer].replace(b"connection: ", b"connection: close, "))
            assert (await answer(address, closing)).endswith(b"connection: close\r\n\r\n2")

    run(body)
    assert caplog.records == []


def test_a_tunnel_is_refused():
    async def body():
        async with serving() as (app, address):
            assert "no proxy" in refusal(await answer(address, b"CONNECT x:443 HTTP/1.1\r\nhost: x\r\n\r\n"), 405)
            assert app.num_begun == 0

    run(body)


def test_one_connection_too_many_is_told_to_come_back():
    async def body():
        async with serving(ConnectionLimits(), max_connections=1) as (app, address):
            idle = socket.create_connection(address)
            await asyncio.sleep(0.05)
            got = await answer(address, CLOSE)
            assert "try again later" in refusal(got, 503)
            assert b"retry-after: 1\r\n" in got.lower()
            assert app.num_begun == 0
            idle.close()
            await asyncio.sleep(0.05)
            assert (await answer(address, CLOSE)).startswith(b"HTTP/1.1 200")

    run(body)
