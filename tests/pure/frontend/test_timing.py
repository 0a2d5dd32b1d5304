"""Arrival times become the observations that the metrics expect."""

from __future__ import annotations

import pytest

from slipstream.frontend.processor import Processor, TextParts
from slipstream.frontend.stream import RequestStream
from slipstream.frontend.timing import Timing
from slipstream.metrics.instruments import Phases
from slipstream.wire.messages import RequestOutput
from slipstream.wire.sampling_params import SamplingParams
from support.fake_engine import fake_facts
from support.tiny_text import tiny_folder

TEXT = TextParts.load(tiny_folder())


class Recorder:
    def __init__(self):
        self.seen = []

    def observe_first_token(self, seconds):
        self.seen.append(("first", seconds))

    def observe_gap(self, seconds):
        self.seen.append(("gap", seconds))


def stream() -> RequestStream:
    request = Processor(TEXT, fake_facts()).make_request("a", (1, 2, 3), SamplingParams(max_tokens=9))
    return RequestStream(request, TEXT.tokenizer)


def test_first_token_gaps_and_the_end():
    recorder, timing = Recorder(), Timing(10.0)
    for now in (10.5, 10.75, 11.75):
        timing.observe(recorder, now)
    assert recorder.seen == [("first", 0.5), ("gap", 0.25), ("gap", 1.0)]
    end = timing.end_of(stream(), "stop", 12.0)
    assert (end.e2e_s, end.after_first_token_s) == (2.0, 1.25)
    assert (end.num_prompt_tokens, end.max_tokens, end.num_generated_tokens) == (3, 9, 0)


def test_a_request_without_tokens_has_no_decode_time():
    assert Timing(1.0).end_of(stream(), "abort", 3.0).after_first_token_s == 0.0


@pytest.mark.parametrize(
    ("num_tokens", "times", "phases"),
    [
        (0, (0.0, 0.0, 0.0), None),
        (0, (0.5, 0.0, 0.0), Phases(0.5, None, None)),
        (0, (0.5, 0.25, 0.0), Phases(0.5, 0.25, None)),
        (1, (0.5, 0.25, 0.0), Phases(0.5, 0.25, 0.0)),
        (2, (0.5, 0.25, 0.125), Phases(0.5, 0.25, 0.125)),
    ],
)
def test_phases_come_with_the_engines_last_output(num_tokens, times, phases):
    """What a request did not reach is not a time of zero."""
    answered = stream()
    if num_tokens:
        answered.feed(RequestOutput(request_id="a", token_ids=(5,) * num_tokens))
    queue_s, prefill_s, decode_s = times
    last = RequestOutput(request_id="a", queue_s=queue_s, prefill_s=prefill_s, decode_s=decode_s, num_preemptions=2)
    end = Timing.with_phases(Timing(1.0).end_of(answered, "abort", 2.0), last)
    assert end.phases == phases
    assert end.num_preemptions == (None if phases is None else 2)
