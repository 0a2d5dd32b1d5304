"""What every route has at hand."""

from __future__ import annotations

import time
import types

import msgspec
import pytest

from slipstream.server.errors import RefusedRequest
from slipstream.server.protocol.responses import Version
from slipstream.server.routes.context import ServerContext, json_response


def test_only_the_served_model_passes():
    context = ServerContext(types.SimpleNamespace(model_name="tiny"), 10)
    context.check_model(None)
    context.check_model("tiny")
    with pytest.raises(RefusedRequest, match="ask for 'tiny'") as caught:
        context.check_model("x" * 500)
    assert caught.value.status == 404
    assert len(str(caught.value)) < 200
    assert abs(context.started - time.time()) < 60


def test_messages_are_sent_as_json():
    response = json_response(Version(version="1"), 201)
    assert response.status_code == 201
    assert response.headers["content-type"] == "application/json"
    assert msgspec.json.decode(response.body) == {"version": "1"}
