"""One HTTP connection: uvicorn's, with limits on what a client may leave unfinished, and a few repairs.

A head or a body that does not arrive costs a connection for ever otherwise, and a head without an end costs memory.
Not here: HTTP itself, which is uvicorn's and httptools' work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httptools
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.flow_control import service_unavailable
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from slipstream.base.errors import OverloadedError
from slipstream.server.call_id import HEADER, draw_id
from slipstream.server.errors import BAD_REQUEST, error_response, plain_error

OVERLOAD_MESSAGE = "this server holds as many connections as it takes: try again later"


@dataclass(frozen=True)
class ConnectionLimits:
    """What a client may leave unfinished.

    Args:
        max_head_bytes: request line and headers together.
        head_s: seconds for a head, from its first byte or, for the first one, from the connection's beginning.
        body_s: seconds that a body may take whatever its length.
        body_bytes_per_s: and one second more for that many bytes that have arrived.
        max_unread_bytes: of a body that goes on after its answer; a client reads the answer sooner if it may send on.
    """

    max_head_bytes: int = 64 * 1024
    head_s: float = 30.0
    body_s: float = 30.0
    body_bytes_per_s: int = 10_000
    max_unread_bytes: int = 64 * 1024 * 1024


DEFAULT_LIMITS = ConnectionLimits()


class Connection(HttpToolsProtocol):
    """One connection.

    Args:
        limits: what the client may leave unfinished.
        settings: uvicorn's own.
    """

    def __init__(self, *, limits: ConnectionLimits = DEFAULT_LIMITS, **settings: Any) -> None:
        super().__init__(**settings)
        self._limits = limits
        self._timer: asyncio.TimerHandle | None = None
        self._is_in_head = False
        self._is_in_body = False
        self._num_heads = 0
        self._num_head_bytes = 0
        self._num_body_bytes = 0
        self._num_unread_bytes = 0
        self._body_began_s = 0.0
        self._running: Any = None
        self._offering = b""
        self._refusal: tuple[int, str] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request, but not for ever."""
        super().connection_made(transport)
        self._set_timer(self._limits.head_s, self._on_head_late)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the call that is being answered, which need not be the last one that was read."""
        self._stop_timer()
        super().connection_lost(exc)
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()
        self.pipeline.clear()

    def data_received(self, data: bytes) -> None:
        """Take bytes; refuse a head that grows too long."""
        num_heads = self._num_heads
        self._feed(data)
        # Only bytes that lie in one head as a whole are counted here; one that ends is measured then.
        if self._is_in_head and num_heads == self._num_heads and not self.transport.is_closing():
            self._num_head_bytes += len(data)
            if self._num_head_bytes > self._limits.max_head_bytes:
                self._refuse(*self._head_too_long())

    def _feed(self, data: bytes) -> None:
        """Take bytes; an offer to change the protocol is declined, and its request answered like any other.

        httptools takes what follows such a head for another protocol, so that the body would be lost.
        """
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as error:
            head = self._head_without_offer()
            self.parser = httptools.HttpRequestParser(self)
            self._feed(head + data[error.args[0] :])
        except httptools.HttpParserError:
            self.logger.warning("Invalid HTTP request received.")
            self.send_400_response("Invalid HTTP request received.")

    def _head_without_offer(self) -> bytes:
        headers = [(name, value) for name, value in self.headers if name not in (b"upgrade", b"http2-settings")]
        lines = [self._offering + b" " + self.url + b" HTTP/1.1"]
        for name, value in headers:
            kept = value
            if name == b"connection":
                words = [word.strip() for word in value.split(b",")]
                kept = b", ".join(word for word in words if word.lower() not in (b"upgrade", b"http2-settings"))
            lines.append(name + b": " + kept)
        self._offering = b""
        return b"\r\n".join(lines) + b"\r\n\r\n"

    def on_message_begin(self) -> None:
        """A head begins."""
        super().on_message_begin()
        self._is_in_head, self._num_head_bytes = True, 0
        self._num_heads += 1
        self._set_timer(self._limits.head_s, self._on_head_late)

    def on_headers_complete(self) -> None:
        """A head has ended, and a body may follow."""
        self._is_in_head = False
        num_bytes = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if num_bytes > self._limits.max_head_bytes:
            self._refusal = self._head_too_long()
            raise ValueError("head too long")
        if self.parser.should_upgrade():
            self._offering = self.parser.get_method()
            if self._offering == b"CONNECT":
                self._refusal = (405, "CONNECT is not served: this is no proxy")
                raise ValueError("no proxy")
            return
        super().on_headers_complete()
        self._is_in_body, self._num_body_bytes, self._body_began_s = True, 0, self.loop.time()
        self._num_unread_bytes = 0
        self._set_timer(self._limits.body_s, self._on_body_late)

    def on_body(self, body: bytes) -> None:
        """Take a piece of a body."""
        self._num_body_bytes += len(body)
        if self.cycle.response_complete:
            self._num_unread_bytes += len(body)
            if self._num_unread_bytes > self._limits.max_unread_bytes:
                self.transport.close()
        super().on_body(body)

    def on_message_complete(self) -> None:
        """A request is whole."""
        if self._offering:
            return
        self._is_in_body = False
        self._stop_timer()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are no request; called when the parser gives up."""
        status, message = self._refusal or (400, f"{msg} Send HTTP/1.1.")
        self._refuse(status, message)

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._running = cycle
        answering: Any = _too_many_connections if app is service_unavailable else app
        super()._start_asgi_task(cycle, answering)

    def _on_head_late(self) -> None:
        if self._is_answering:
            self._set_timer(self._limits.head_s, self._on_head_late)
        elif self._is_in_head:
            self._refuse(408, f"the head of the request was not complete after {self._limits.head_s:g} seconds")
        elif self.cycle is None:
            self.transport.close()

    def _on_body_late(self) -> None:
        if not self._is_in_body:
            return
        if self.flow.read_paused:
            # It is we who do not read.
            self._body_began_s = self.loop.time()
        deadline_s = self._body_began_s + self._limits.body_s + self._num_body_bytes / self._limits.body_bytes_per_s
        left_s = deadline_s - self.loop.time()
        if left_s > 0:
            self._set_timer(left_s, self._on_body_late)
        else:
            self._refuse(408, f"the body came too slowly: {self._num_body_bytes} bytes have arrived")

    @property
    def _is_answering(self) -> bool:
        return self._running is not None and not self._running.response_complete

    def _head_too_long(self) -> tuple[int, str]:
        return 431, f"the request line and the headers are longer than {self._limits.max_head_bytes} bytes: send less"

    def _refuse(self, status: int, message: str) -> None:
        """Answer below the application, unless that would fall into another answer, and close."""
        self._stop_timer()
        has_answer = self._running is not None and self._running.response_started
        is_next = self._is_in_head or not self._is_in_body
        if not has_answer or (is_next and not self._is_answering):
            response = plain_error(status, BAD_REQUEST, message, {"connection": "close"})
            headers = [*response.raw_headers, (HEADER, draw_id().encode("ascii"))]
            lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
            self.transport.write(STATUS_LINE[status] + lines + b"\r\n" + bytes(response.body))
        self.transport.close()

    def _set_timer(self, delay_s: float, call: Callable[[], None]) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(delay_s, call)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


async def _too_many_connections(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer in the place of the application."""
    response = error_response(OverloadedError(OVERLOAD_MESSAGE), scope["path"])
    response.headers["connection"] = "close"
    response.raw_headers.append((HEADER, draw_id().encode("ascii")))
    await response(scope, receive, send)
