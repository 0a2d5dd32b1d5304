"""Errors to HTTP answers: in the shape of the Messages API on its routes, in the OpenAI shape on every other."""

from __future__ import annotations

import logging

import msgspec
from fastapi import Request, Response
from starlette.exceptions import HTTPException

from slipstream.base.errors import ContextLengthError, OverloadedError, RequestError, SlipstreamError
from slipstream.base.log import log_fields
from slipstream.server.call_id import call_of
from slipstream.server.protocol.messages.errors import is_messages_path, messages_error
from slipstream.server.protocol.responses import Error, ErrorBody

_LOG = logging.getLogger("slipstream.server")

BAD_REQUEST = "invalid_request_error"
UNAUTHORIZED = "authentication_error"
NOT_FOUND = "not_found_error"
OVERLOADED = "overloaded_error"
INTERNAL = "internal_error"
_MAX_SHOWN = 80
_CONTEXT_FIELDS = {
    "/v1/chat/completions": {"prompt": "messages"},
    "/v1/messages": {"prompt": "messages"},
    "/v1/responses": {"prompt": "input", "messages": "input"},
}
"""What a field at fault, when the context is too short, is called by an endpoint that names it otherwise."""

CLIENT_GONE_STATUS = 499
"""Nobody reads it; it is what logs of other servers call a client that left."""


class RefusedRequest(RequestError):
    """A request error with a status of its own, 404 or 413 for instance."""

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message, param=param, code=code)
        self.status = status


def status_of(error: SlipstreamError) -> int:
    """Return the HTTP status of an error."""
    if isinstance(error, RefusedRequest):
        return error.status
    if isinstance(error, RequestError):
        return 400
    return 503 if isinstance(error, OverloadedError) else 500


def error_body(error: SlipstreamError) -> ErrorBody:
    """Return what an error says to the client."""
    status = status_of(error)
    param = error.param if isinstance(error, RequestError) else None
    code = error.code if isinstance(error, RequestError) else None
    kind = {404: NOT_FOUND, 500: INTERNAL, 503: OVERLOADED}.get(status, BAD_REQUEST)
    return ErrorBody(error=Error(message=str(error), type=kind, param=param, code=code))


def error_response(error: SlipstreamError, path: str = "") -> Response:
    """Return the answer for an error of this project.

    Args:
        error: what went wrong.
        path: of the request; it decides the shape.
    """
    headers = {"Retry-After": str(error.retry_after_s)} if isinstance(error, OverloadedError) else None
    return _json(error_body(error), status_of(error), headers, path)


def plain_error(
    status: int, kind: str, message: str, headers: dict[str, str] | None = None, *, path: str = ""
) -> Response:
    """Return an answer for an error that is no exception of this project; the request's path decides its shape."""
    return _json(ErrorBody(error=Error(message=message, type=kind, param=None, code=None)), status, headers, path)


async def on_project_error(request: Request, error: Exception) -> Response:
    """Answer an error of this project."""
    assert isinstance(error, SlipstreamError)
    if isinstance(error, ContextLengthError) and error.param is not None:
        error.param = _CONTEXT_FIELDS.get(request.url.path, {}).get(error.param, error.param)
    if status_of(error) >= 500 and not isinstance(error, OverloadedError):
        log_fields(
            _LOG,
            logging.ERROR,
            "a request cannot be served",
            request_id=call_of(request).call_id,
            error=type(error).__name__,
            reason=str(error),
        )
    return error_response(error, request.url.path)


async def on_http_error(request: Request, error: Exception) -> Response:
    """Answer an unknown route or a wrong method."""
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    path = request.url.path[:_MAX_SHOWN]
    if error.status_code == 404:
        return plain_error(404, NOT_FOUND, f"{path} is not a route of this server", headers, path=path)
    if error.status_code == 405:
        allowed = headers.get("Allow", "another method")
        message = f"{request.method} is not allowed on {path}: use {allowed}"
        return plain_error(405, BAD_REQUEST, message, headers, path=path)
    return plain_error(error.status_code, BAD_REQUEST, str(error.detail), headers, path=path)


async def on_client_gone(request: Request, error: Exception) -> Response:
    """Answer a client that left while it was sending; nobody reads it."""
    del request, error
    return Response(status_code=CLIENT_GONE_STATUS)


async def on_other_error(request: Request, error: Exception) -> Response:
    """Answer a fault of the server."""
    message = f"the server failed on {request.url.path} ({type(error).__name__}); its log says more"
    return plain_error(500, INTERNAL, message, path=request.url.path)


def _json(body: ErrorBody, status: int, headers: dict[str, str] | None, path: str) -> Response:
    shaped = messages_error(body, status) if is_messages_path(path) else body
    return Response(msgspec.json.encode(shaped), status, headers, "application/json")
