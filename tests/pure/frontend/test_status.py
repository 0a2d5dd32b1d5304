"""A failure that crossed a process keeps its class, whatever it says."""

from __future__ import annotations

import pytest

from slipstream.base.errors import CapacityError, CheckpointError, EngineError
from slipstream.frontend.status import Status, error_of
from slipstream.wire.messages import Failed


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
