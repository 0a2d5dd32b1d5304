"""Name every call, log how it ended, and answer when a handler fails: the outermost layer of the application.

A line holds no query string, no header and no body, so neither a key nor a prompt can get into it.
"""

from __future__ import annotations

import asyncio
import logging
import time

from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from slipstream.base.log import log_fields
from slipstream.server.call_id import HEADER, OTHER_HEADER, name_call
from slipstream.server.errors import CLIENT_GONE_STATUS, on_other_error

ACCESS_LOGGER = "slipstream.access"
LAST_WORD_S = 5
"""How long the line of a call waits for what the engine has still to say about its requests."""

QUIET_PATHS = frozenset({"/health", "/metrics"})
"""Asked every few seconds by probes and scrapers; their lines are for debugging."""

_MAX_PATH_CHARS = 200
_ACCESS = logging.getLogger(ACCESS_LOGGER)
_LOG = logging.getLogger("slipstream.server")


class RequestLog:
    """ASGI middleware, around everything else.

    Args:
        app: what is behind it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on and log its end."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        seen = _Seen(scope, receive, send)
        try:
            await self._app(scope, seen.receive, seen.send)
        except Exception as error:
            # Its class and places are logged, not its message, which may quote the request.
            _LOG.error("a request failed", exc_info=error, extra={"fields": {"request_id": seen.call.call_id}})
            if seen.status is not None:
                # The server cuts the connection; there is no other way to say that an answer is not whole.
                raise
            answer = await on_other_error(Request(scope), error)
            await answer(scope, receive, seen.send)
        finally:
            await seen.log_end()


class _Seen:
    """What of a request and its answer is seen from outside."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.call = name_call(scope)
        self.status: int | None = None
        self._is_complete = False
        self._is_client_gone = False
        self._scope = scope
        self._receive = receive
        self._send = send
        self._started_s = time.monotonic()

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.disconnect" and not self._is_complete:
            self._is_client_gone = True
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [pair for pair in message.get("headers", ()) if pair[0].lower() != HEADER]
            call_id = self.call.call_id.encode("ascii")
            message = {**message, "headers": [*headers, (HEADER, call_id), (OTHER_HEADER, call_id)]}
        elif not message.get("more_body", False):
            self._is_complete = not self._is_client_gone
        await self._send(message)

    async def log_end(self) -> None:
        duration_s = time.monotonic() - self._started_s
        try:
            await asyncio.wait_for(self.call.wait_settled(), LAST_WORD_S)
        except TimeoutError:
            pass
        finally:
            self._write(duration_s)

    def _write(self, duration_s: float) -> None:
        path = self._scope["path"]
        summary = self.call.summary()
        asked = (
            {}
            if summary is None
            else {
                "num_requests": summary.num_requests,
                "prompt_tokens": summary.num_prompt_tokens,
                "cached_tokens": summary.num_prefix_hit_tokens,
                "completion_tokens": summary.num_generated_tokens,
                "queue_s": summary.queue_s,
                "prefill_s": summary.prefill_s,
                "decode_s": summary.decode_s,
                "first_token_s": summary.first_token_s,
                "acceptance_length": summary.acceptance_length,
                "finish_reason": ",".join(summary.finish_reasons),
            }
        )
        log_fields(
            _ACCESS,
            logging.DEBUG if path in QUIET_PATHS else logging.INFO,
            "request ended",
            request_id=self.call.call_id,
            method=self._scope["method"],
            path=path[:_MAX_PATH_CHARS],
            status=self.status,
            duration_s=duration_s,
            client_gone=self._is_client_gone or self.status in (None, CLIENT_GONE_STATUS),
            **asked,
        )
