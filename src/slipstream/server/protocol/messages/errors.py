"""Errors in the shape of the Messages API, for the routes that speak it."""

from __future__ import annotations

import msgspec

from slipstream.server.protocol.responses import ErrorBody

_PATH = "/v1/messages"
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    529: "overloaded_error",
}


class MessagesError(msgspec.Struct, frozen=True):
    """What went wrong."""

    type: str
    message: str


class MessagesErrorBody(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="error"):
    """What every error on a route of the Messages API is answered with, and the event of one within a stream."""

    error: MessagesError


def is_messages_path(path: str) -> bool:
    """Return whether clients of the Messages API are expected at a path, served or not."""
    return path == _PATH or path.startswith(f"{_PATH}/")


def messages_error(body: ErrorBody, status: int) -> MessagesErrorBody:
    """Return an error in this shape.

    Args:
        body: the error as every other route says it. Its field is named by the message too, and its code has no place.
        status: the HTTP status. An overloaded server says 503 here as everywhere: proxies and load balancers know it,
            and clients retry on it and read the reason from the type.
    """
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    return MessagesErrorBody(error=MessagesError(kind, body.error.message))
