"""Every error of the project has a status, a type and the right fields."""

from __future__ import annotations

import msgspec
import pytest

from slipstream.base import errors
from slipstream.base.errors import (
    CapacityError,
    ContextLengthError,
    EngineError,
    OverloadedError,
    RequestError,
    SlipstreamError,
    UnsupportedFeature,
)
from slipstream.server.errors import RefusedRequest, error_response, plain_error, status_of


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (RequestError("bad", param="x", code="y"), 400, "invalid_request_error"),
        (UnsupportedFeature("no", param="x"), 400, "invalid_request_error"),
        (ContextLengthError("long"), 400, "invalid_request_error"),
        (RefusedRequest(404, "where", code="z"), 404, "not_found_error"),
        (RefusedRequest(413, "long"), 413, "invalid_request_error"),
        (OverloadedError("full", retry_after_s=7), 503, "overloaded_error"),
        (EngineError("broke"), 500, "internal_error"),
        (CapacityError("small"), 500, "internal_error"),
    ],
)
def test_status_type_and_fields(error, status, kind):
    response = error_response(error)
    assert response.status_code == status
    body = msgspec.json.decode(response.body)["error"]
    assert body == {
        "message": str(error),
        "type": kind,
        "param": getattr(error, "param", None),
        "code": getattr(error, "code", None),
    }
    assert response.headers.get("retry-after") == ("7" if status == 503 else None)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RequestError("bad"), "invalid_request_error"),
        (RefusedRequest(404, "where"), "not_found_error"),
        (RefusedRequest(413, "long"), "request_too_large"),
        (OverloadedError("full", retry_after_s=7), "overloaded_error"),
        (EngineError("broke"), "api_error"),
    ],
)
def test_routes_of_the_messages_api_have_its_shape(error, kind):
    response = error_response(error, "/v1/messages")
    assert response.status_code == status_of(error)
    assert msgspec.json.decode(response.body) == {"type": "error", "error": {"type": kind, "message": str(error)}}
    assert msgspec.json.decode(error_response(error, "/v1/models").body).keys() == {"error"}
    plain = msgspec.json.decode(plain_error(401, "authentication_error", "no", path="/v1/messages/x").body)
    assert plain == {"type": "error", "error": {"type": "authentication_error", "message": "no"}}


def test_every_class_of_the_tree_has_a_status():
    classes = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, SlipstreamError)]
    assert len(classes) >= 10
    for kind in classes:
        assert status_of(kind("x")) == (
            400 if issubclass(kind, RequestError) else 503 if kind is OverloadedError else 500
        )
