"""Read a request body, up to a limit."""

from __future__ import annotations

from typing import Any

from fastapi import Request

from slipstream.base.errors import RequestError
from slipstream.server.errors import RefusedRequest
from slipstream.server.protocol.parse import parse_json

MAX_BODY_BYTES = 32 * 1024 * 1024
"""A million-token prompt as JSON takes about a quarter of it."""


async def read_object(request: Request, max_body_bytes: int) -> dict[str, Any]:
    """Return the JSON object in a request's body.

    Args:
        request: not yet read.
        max_body_bytes: longer bodies are refused, without being kept.

    Raises:
        RequestError: it is too long, encoded, of another type, or not a JSON object.
    """
    kind = request.headers.get("content-type")
    if kind is not None and kind.partition(";")[0].strip().lower() != "application/json":
        raise RequestError(f"content-type {kind[:80]!r} is not served: send application/json")
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise RequestError(f"content-encoding {encoding[:80]!r} is not served: send the body as it is")
    return parse_json(await _read(request, max_body_bytes))


async def _read(request: Request, max_body_bytes: int) -> bytes:
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared) > max_body_bytes:
        raise _too_long(max_body_bytes)
    pieces: list[bytes] = []
    length = 0
    async for piece in request.stream():
        length += len(piece)
        if length > max_body_bytes:
            raise _too_long(max_body_bytes)
        pieces.append(piece)
    return b"".join(pieces)


def _too_long(max_body_bytes: int) -> RefusedRequest:
    return RefusedRequest(413, f"the body is longer than {max_body_bytes} bytes: send less", code="body_too_long")
