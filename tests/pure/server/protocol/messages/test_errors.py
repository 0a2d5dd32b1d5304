"""Errors of the Messages API: its shape, its types, its paths."""

from __future__ import annotations

import msgspec
import pytest

from slipstream.server.protocol.messages.errors import is_messages_path, messages_error
from slipstream.server.protocol.responses import Error, ErrorBody


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (405, "invalid_request_error"),
        (401, "authentication_error"),
        (404, "not_found_error"),
        (413, "request_too_large"),
        (500, "api_error"),
        (503, "overloaded_error"),
    ],
)
def test_types(status, kind):
    body = messages_error(ErrorBody(error=Error(message="why", type="x", param="p", code="c")), status)
    assert msgspec.json.decode(msgspec.json.encode(body)) == {
        "type": "error",
        "error": {"type": kind, "message": "why"},
    }


@pytest.mark.parametrize(
    ("path", "is_one"),
    [
        ("/v1/messages", True),
        ("/v1/messages/count_tokens", True),
        ("/v1/messages/batches", True),
        ("/v1/messagesx", False),
        ("/v1/responses", False),
        ("/v1", False),
    ],
)
def test_paths(path, is_one):
    assert is_messages_path(path) is is_one
