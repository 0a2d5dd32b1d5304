"""The engine's loop over the scripted device: which step a turn collects, and what it answers at once."""

from __future__ import annotations

import random

import pytest

from slipstream.engine.core import EngineCore
from support.fake_runner import EngineLoop, accept_randomly, expected_stream, make_request, random_prompt


class Recorder:
    """A runner that notes the order of submits and collects."""

    def __init__(self, runner):
        self._runner = runner
        self.events = []

    def submit(self, plan):
        self.events.append(f"s{plan.step_id}")
        return self._runner.submit(plan)

    def collect_ladders(self, handle):
        result, left = self._runner.collect_ladders(handle)
        self.events.append(f"l{result.step_id}")
        return result, left

    def collect(self, handle):
        result = self._runner.collect(handle)
        self.events.append(f"c{result.step_id}")
        return result


def make_core(*, overlap, seed=0):
    parts = EngineLoop(is_overlapped=overlap, accept=accept_randomly(seed))
    recorder = Recorder(parts.runner)
    return EngineCore(parts.scheduler, recorder, overlap=overlap), recorder


def some_requests(seed):
    rng = random.Random(seed)
    return [make_request(f"r{i}", random_prompt(rng, 20), seed=i) for i in range(6)]


def run(core, requests):
    for request in requests:
        assert core.submit(request) is None
    streams = {request.request_id: () for request in requests}
    for _ in range(1000):
        if not core.has_work:
            return streams
        for output in core.turn():
            streams[output.request_id] += output.token_ids
    raise AssertionError("the engine never becomes idle")


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_both_loops_give_every_request_its_tokens(overlap, seed):
    requests = some_requests(seed)
    core, _ = make_core(overlap=overlap, seed=seed)
    assert run(core, requests) == {r.request_id: expected_stream(r)[0] for r in requests}


def test_without_overlap_a_step_is_collected_before_the_next_is_submitted():
    core, recorder = make_core(overlap=False)
    run(core, some_requests(0))
    events = [event for event in recorder.events if event[0] != "l"]
    assert events == [f"{kind}{step}" for step in range(len(events) // 2) for kind in "sc"]


def test_with_overlap_a_step_is_submitted_before_the_last_is_collected():
    core, recorder = make_core(overlap=True)
    run(core, some_requests(0))
    events = [event for event in recorder.events if event[0] != "l"]
    assert events[:4] == ["s0", "s1", "c0", "s2"]
    in_flight = most = 0
    for event in events:
        in_flight += 1 if event[0] == "s" else -1
        most = max(most, in_flight)
    assert (most, in_flight) == (2, 0)


@pytest.mark.parametrize("overlap", [False, True])
def test_tokens_of_decoding_rows_do_not_wait_for_somebody_s_prompt(overlap):
    """A step with both parts is told of in two turns: its ladders, then its chunks, and nothing is planned between."""
    core, recorder = make_core(overlap=overlap)
    core.submit(make_request("decoding", (3, 4, 5), seed=1, max_tokens=60))
    for _ in range(3):
        core.turn()
    core.submit(make_request("long", tuple(range(1, 60)), seed=2))
    num_split = 0
    while core.has_work:
        before = len(recorder.events)
        news = core.turn()
        events = recorder.events[before:]
        if events and events[-1][0] == "l":
            num_split += 1
            assert [output.request_id for output in news] == ["decoding"]
            before, after = len(recorder.events), core.turn()
            assert recorder.events[before:] == [f"c{events[-1][1:]}"]
            assert all(output.request_id == "long" for output in after)
    assert num_split >= 2


@pytest.mark.parametrize("overlap", [False, True])
def test_an_abort_between_the_two_parts_of_a_step_loses_nothing(overlap):
    requests = [make_request("a", (3, 4, 5), seed=1, max_tokens=40), make_request("b", tuple(range(1, 60)), seed=2)]
    for aborted in ("a", "b"):
        core, recorder = make_core(overlap=overlap)
        core.submit(requests[0])
        streams = {"a": tuple(token for output in core.turn() for token in output.token_ids), "b": ()}
        core.submit(requests[1])
        is_aborted = False
        while core.has_work:
            for output in core.turn():
                streams[output.request_id] += output.token_ids
            if recorder.events[-1][0] == "l" and not is_aborted:
                is_aborted = core.abort(aborted) is not None
        assert is_aborted
        other = next(request for request in requests if request.request_id != aborted)
        assert streams[other.request_id] == expected_stream(other)[0]
        assert core.stats().num_running == 0


def test_a_request_that_can_never_fit_is_answered_at_once():
    core, recorder = make_core(overlap=False)
    answer = core.submit(make_request("big", tuple(range(1, 5)) * 200))
    assert answer is not None
    assert (answer.request_id, answer.finish_reason) == ("big", "error")
    assert answer.error
    assert not core.has_work
    assert core.turn() == []
    assert recorder.events == []


@pytest.mark.parametrize("overlap", [False, True])
def test_an_abort_ends_a_request_and_unknown_ones_are_ignored(overlap):
    core, _ = make_core(overlap=overlap)
    first, second = some_requests(1)[:2]
    core.submit(first)
    core.submit(second)
    core.turn()
    ended = core.abort(first.request_id)
    assert ended is not None
    assert ended.finish_reason == "abort"
    assert core.abort(first.request_id) is None
    assert core.abort("nobody") is None
    while core.has_work:
        assert all(output.request_id == second.request_id for output in core.turn())
    assert core.stats().num_running == 0


def test_closing_ends_what_the_runner_holds_once():
    parts, closed = EngineLoop(is_overlapped=False, accept=accept_randomly(0)), []
    core = EngineCore(parts.scheduler, parts.runner, overlap=False, on_close=lambda: closed.append(1))
    core.submit(make_request("a", [3, 4, 5], seed=1))
    assert core.request_ids == ("a",)
    core.close()
    core.close()
    assert closed == [1]
