"""The engine's lines name the request, and hold nothing of its text."""

from __future__ import annotations

import logging

import pytest

from slipstream.engine.main import log_begin, log_ends
from slipstream.wire.messages import RequestOutput
from slipstream.wire.request import Request
from slipstream.wire.sampling_params import SamplingParams

REQUEST = Request(
    request_id="call-1",
    prompt_token_ids=(71234, 81234),
    sampling=SamplingParams(stop=("secret stop",)),
    seed=1,
    max_seq_len=9,
)


def fields_of(record: logging.LogRecord) -> dict[str, object]:
    return record.fields  # type: ignore[attr-defined]


def test_a_failed_request_is_a_warning_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="slipstream.engine")
    log_begin(REQUEST)
    log_ends(
        [
            RequestOutput(request_id="call-1", token_ids=(5,)),
            RequestOutput(request_id="call-2", finish_reason="stop"),
            RequestOutput(request_id="call-3", finish_reason="error", error="not finite"),
        ]
    )
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [("WARNING", "request failed")]
    assert fields_of(caplog.records[0]) == {"request_id": "call-3", "reason": "not finite"}


def test_every_request_shows_when_debugging(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="slipstream.engine")
    log_begin(REQUEST)
    log_ends([RequestOutput(request_id="call-1", finish_reason="length", queue_s=0.5)])
    begun, ended = map(fields_of, caplog.records)
    assert begun["request_id"] == ended["request_id"] == "call-1"
    assert (begun["prompt_tokens"], ended["finish_reason"], ended["queue_s"]) == (2, "length", 0.5)
    assert "71234" not in str(begun)
    assert "secret" not in str(begun)


def test_a_refusal_s_message_may_quote_the_request_and_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="slipstream.engine")
    refused = {"finish_reason": "error", "error": "regex '(?<!secret)b' cannot", "error_code": "invalid_grammar"}
    log_ends([RequestOutput(request_id="call-4", error_kind="UnsupportedFeature", **refused)])
    (record,) = caplog.records
    assert fields_of(record) == {"request_id": "call-4", "kind": "UnsupportedFeature", "code": "invalid_grammar"}
    assert "secret" not in record.getMessage()
