"""Server-sent events: one message per chunk, and an end however the stream ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable

import msgspec
from fastapi import Response
from starlette.types import Receive, Scope, Send

from slipstream.base.errors import SlipstreamError
from slipstream.server.disconnect import wait_for_disconnect
from slipstream.server.errors import error_body

DONE = b"data: [DONE]\n\n"
_encoder = msgspec.json.Encoder()


def event(message: msgspec.Struct, name: str | None = None) -> bytes:
    """Return one event; JSON has no line break of its own, so one line holds it.

    Args:
        message: its data.
        name: what the event is called, for clients that tell events apart by name.
    """
    head = b"" if name is None else b"event: " + name.encode() + b"\n"
    return head + b"data: " + _encoder.encode(message) + b"\n\n"


def error_event(error: SlipstreamError) -> bytes:
    """Return the event of an error in the middle of a stream, in the OpenAI shape."""
    return event(error_body(error))


class EventStream(Response):
    """A response that sends events as they come.

    An error in the middle is sent as an error event and ends the stream, without the tail. When the client leaves,
    the iteration is cancelled at once, even if it waits for the engine.

    Args:
        events: encoded events.
        on_close: told exactly once, whether or not the iteration ever began.
        tail: sent after the last event.
        on_error: returns the event of an error in the middle.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncGenerator[bytes, None],
        on_close: Callable[[], None],
        *,
        tail: bytes = DONE,
        on_error: Callable[[SlipstreamError], bytes] = error_event,
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._events = events
        self._on_close = on_close
        self._tail = tail
        self._on_error = on_error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until they end or the client leaves."""
        del scope
        sending = asyncio.ensure_future(self._send_all(send))
        watching = asyncio.ensure_future(wait_for_disconnect(receive))
        try:
            await asyncio.wait({sending, watching}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            for task in (sending, watching):
                task.cancel()
            self._on_close()
            await asyncio.gather(sending, watching, return_exceptions=True)

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            # Left in the middle of a send, the iteration would otherwise stay suspended with what it waits for.
            async with contextlib.aclosing(self._events) as events:
                async for body in events:
                    await send({"type": "http.response.body", "body": body, "more_body": True})
            last = self._tail
        except SlipstreamError as error:
            last = self._on_error(error)
        await send({"type": "http.response.body", "body": last, "more_body": False})
