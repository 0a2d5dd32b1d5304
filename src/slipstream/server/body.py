"""Read a request body, up to a limit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import Request

from slipstream.base.errors import OverloadedError, RequestError
from slipstream.server.errors import RefusedRequest
from slipstream.server.protocol.parse import parse_json

MAX_BODY_BYTES = 32 * 1024 * 1024
"""A million-token prompt as JSON takes about a quarter of it."""


MAX_BODIES_BYTES = 8 * MAX_BODY_BYTES
"""Most bytes of all bodies that are being read at once."""


LONG_BODY_BYTES = 1 << 20
"""Longer bodies are decoded beside the event loop, so that other streams go on."""

_MAX_DIGITS = 18

DecodeApart = Callable[[Callable[[], dict[str, Any]], int], Awaitable[dict[str, Any]]]
"""Calls a function somewhere else; the number says how many characters it reads."""


class BodyBudget:
    """Bytes of the bodies that are being read.

    Args:
        max_bytes: most of them.
    """

    def __init__(self, max_bytes: int = MAX_BODIES_BYTES) -> None:
        self.num_bytes = 0
        self._max_bytes = max_bytes

    def take(self, num_bytes: int) -> None:
        """Take bytes.

        Raises:
            OverloadedError: there are not so many left.
        """
        if self.num_bytes + num_bytes > self._max_bytes:
            raise OverloadedError(f"bodies of {self._max_bytes} bytes are being read already: try again later")
        self.num_bytes += num_bytes

    def give_back(self, num_bytes: int) -> None:
        """Give bytes back."""
        self.num_bytes -= num_bytes


async def read_object(
    request: Request, max_body_bytes: int, bodies: BodyBudget, decode_apart: DecodeApart
) -> dict[str, Any]:
    """Return the JSON object in a request's body.

    Args:
        request: not yet read.
        max_body_bytes: longer bodies are refused, without being kept.
        bodies: what all bodies that are being read may hold.
        decode_apart: decodes a long body beside the event loop.

    Raises:
        OverloadedError: too much is being read at once.
        RequestError: it is too long, encoded, of another type, or not a JSON object.
    """
    kind = request.headers.get("content-type")
    if kind is not None and kind.partition(";")[0].strip().lower() != "application/json":
        raise RequestError(f"content-type {kind[:80]!r} is not served: send application/json")
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise RequestError(f"content-encoding {encoding[:80]!r} is not served: send the body as it is")
    body = await _read(request, max_body_bytes, bodies)
    if len(body) <= LONG_BODY_BYTES:
        return parse_json(body)
    return await decode_apart(lambda: parse_json(body), len(body))


async def _read(request: Request, max_body_bytes: int, bodies: BodyBudget) -> bytes:
    # Leading zeros are allowed, and Python refuses to read a number of very many digits.
    declared = request.headers.get("content-length", "").lstrip("0")
    if declared.isascii() and declared.isdigit() and (len(declared) > _MAX_DIGITS or int(declared) > max_body_bytes):
        raise _too_long(max_body_bytes)
    pieces: list[bytes] = []
    length = 0
    try:
        async for piece in request.stream():
            if length + len(piece) > max_body_bytes:
                raise _too_long(max_body_bytes)
            bodies.take(len(piece))
            length += len(piece)
            pieces.append(piece)
        return b"".join(pieces)
    finally:
        bodies.give_back(length)


def _too_long(max_body_bytes: int) -> RefusedRequest:
    return RefusedRequest(413, f"the body is longer than {max_body_bytes} bytes: send less", code="body_too_long")
