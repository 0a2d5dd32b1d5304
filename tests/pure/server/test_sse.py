"""A stream of events ends exactly once, and its `on_close` is told however it ends."""

from __future__ import annotations

import asyncio

import pytest

from slipstream.base.errors import EngineError
from slipstream.server.protocol.responses import Version
from slipstream.server.sse import DONE, EventStream, event
from support.http_world import run


class Client:
    """The other end of an ASGI connection.

    Args:
        leaves_after: messages after which it is gone; None stays.
    """

    def __init__(self, leaves_after: int | None = None) -> None:
        self.sent = []
        self._leaves_after = leaves_after
        self._gone = asyncio.Event()
        if leaves_after == 0:
            self._gone.set()

    async def receive(self):
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message):
        await asyncio.sleep(0)
        self.sent.append(message)
        if len(self.sent) == self._leaves_after:
            self._gone.set()

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)


async def play(events, client, **options) -> list[bool]:
    closed = []
    await EventStream(events, lambda: closed.append(True), **options)({}, client.receive, client.send)
    return closed


def test_events_and_the_end():
    async def events():
        yield event(Version(version="a\nb"))
        yield event(Version(version="c"))

    async def body():
        client = Client()
        assert await play(events(), client) == [True]
        assert client.body == b'data: {"version":"a\\nb"}\n\ndata: {"version":"c"}\n\n' + DONE
        headers = dict(client.sent[0]["headers"])
        assert headers[b"content-type"].startswith(b"text/event-stream")
        assert b"content-length" not in headers
        assert [m.get("more_body") for m in client.sent] == [None, True, True, False]

    run(body)


def test_an_error_is_an_event_and_the_end():
    async def events():
        yield b"data: 1\n\n"
        raise EngineError("gone")

    async def body():
        client = Client()
        assert await play(events(), client) == [True]
        assert client.body.startswith(b'data: 1\n\ndata: {"error":{"message":"gone"')
        assert DONE not in client.body
        assert client.sent[-1]["more_body"] is False

    run(body)


def test_events_with_names_and_an_end_of_a_protocols_own():
    async def events():
        yield event(Version(version="a"), "begun")
        raise EngineError("gone")

    async def good():
        yield event(Version(version="a"), "begun")

    async def body():
        client = Client()
        await play(events(), client, tail=b"", on_error=lambda error: f"event: error\ndata: {error}\n\n".encode())
        begun = b'event: begun\ndata: {"version":"a"}\n\n'
        assert client.body == begun + b"event: error\ndata: gone\n\n"
        client = Client()
        await play(good(), client, tail=b"")
        assert client.body == begun
        assert client.sent[-1]["more_body"] is False

    run(body)


@pytest.mark.parametrize("leaves_after", [0, 1, 2])
def test_a_client_that_leaves_cancels_a_waiting_iteration(leaves_after):
    async def body():
        begun, ended = [], []

        async def events():
            begun.append(True)
            try:
                yield b"data: 1\n\n"
                await asyncio.Event().wait()
            finally:
                ended.append(True)

        client = Client(leaves_after)
        assert await play(events(), client) == [True]
        assert ended == begun
        assert len(client.sent) <= 2

    run(body)


def test_cancelling_the_response_closes_too():
    async def body():
        closed = []

        async def events():
            await asyncio.Event().wait()
            yield b""

        client = Client()
        response = EventStream(events(), lambda: closed.append(True))
        task = asyncio.create_task(response({}, client.receive, client.send))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert closed == [True]

    run(body)


def test_a_fault_of_the_iteration_is_not_swallowed():
    async def events():
        raise ZeroDivisionError
        yield b""

    async def body():
        with pytest.raises(ZeroDivisionError):
            await play(events(), Client())

    run(body)
