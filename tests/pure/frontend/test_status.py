"""A failure that crossed a process keeps its class, whatever it says."""

from __future__ import annotations

import pytest

from slipstream.base.errors import (
    CapacityError,
    CheckpointError,
    EngineError,
    OverloadedError,
    RequestError,
    UnsupportedFeature,
)
from slipstream.frontend.status import Status, error_of, error_of_output
from slipstream.wire.messages import Failed, RequestOutput


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("CapacityError", CapacityError),
        ("CheckpointError", CheckpointError),
        ("ValueError", EngineError),
        ("annotations", EngineError),
        ("", EngineError),
    ],
)
def test_the_class_of_an_error_is_found_by_its_name(kind, error):
    found = error_of(Failed(kind=kind, reason="no room"))
    assert type(found) is error
    assert str(found) == "no room"


def test_a_status_says_nothing_that_is_not_known():
    assert Status(state="ready") == Status(state="ready", reason="", progress=None, num_streams=0)


@pytest.mark.parametrize(
    ("kind", "code", "error"),
    [
        ("RequestError", "invalid_grammar", RequestError),
        ("UnsupportedFeature", None, UnsupportedFeature),
        ("OverloadedError", None, OverloadedError),
        ("EngineError", None, EngineError),
        ("SystemExit", None, EngineError),
        (None, None, EngineError),
    ],
)
def test_the_error_of_a_request_keeps_class_and_code(kind, code, error):
    output = RequestOutput(
        request_id="r", finish_reason="error", error="cannot be used", error_kind=kind, error_code=code
    )
    found = error_of_output(output)
    assert type(found) is error
    assert str(found) == "cannot be used"
    assert getattr(found, "code", None) == code


def test_an_end_without_a_reason_still_has_words():
    assert str(error_of_output(RequestOutput(request_id="r", finish_reason="abort"))) == "the engine ended the request"
