from __future__ import annotations

import pytest

from slipstream.wire.ids import NO_ROW
from support.fake_runner import EngineLoop, make_request


def running_loop(**options) -> EngineLoop:
    loop = EngineLoop(prefill_chunk_tokens=64, enable_prefix=False, **options)
    loop.submit(make_request("a", range(10)), make_request("b", range(20)))
    loop.turn()
    return loop


def test_running_requests_are_listed_by_age_and_not_by_row():
    loop = running_loop(max_num_seqs=2)
    state = loop.scheduler._state
    loop.abort("a")
    loop.submit(make_request("c", [5]))
    loop.turn()
    assert [(item.ledger.request_id, item.row) for item in state.by_age()] == [("b", 1), ("c", 0)]


def test_finishing_gives_row_and_pages_back_and_empties_the_state():
    loop = running_loop()
    state = loop.scheduler._state
    running = state.by_age()[0]
    finished = state.finish(running, "stop", stop_reason=9)
    assert (finished.finish_reason, finished.stop_reason) == ("stop", 9)
    assert finished.ledger.request_id == "a"
    assert running.row == NO_ROW
    assert state.rows.num_free == 3
    loop.cache.check()


def test_preemption_requeues_before_all_others_and_counts():
    loop = running_loop(max_num_seqs=2)
    loop.submit(make_request("c", [5]))
    state = loop.scheduler._state
    victim = state.by_age()[-1]
    num_used = loop.cache.counts.num_used
    state.preempt(victim)
    assert loop.scheduler.request_ids == ("a", "b", "c")
    assert victim.row == NO_ROW
    assert loop.cache.counts.num_used < num_used
    assert state.tally.num_preemptions == 1


def test_a_request_with_a_result_in_flight_is_not_preempted():
    loop = running_loop(is_overlapped=True)
    with pytest.raises(AssertionError):
        loop.scheduler._state.preempt(loop.scheduler._state.by_age()[-1])
