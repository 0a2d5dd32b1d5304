from __future__ import annotations

import pytest

from slipstream.base.errors import EngineError
from support.fake_runner import EngineLoop, accept_pattern, make_request


def test_decode_rows_and_chunks_share_a_step_and_prefill_never_holds_decode_up():
    loop = EngineLoop(prefill_chunk_tokens=4)
    loop.submit(make_request("a", range(3), max_tokens=40))
    loop.turn()
    loop.submit(make_request("b", range(50, 80)))
    for number in range(7):
        plan = loop.turn()
        assert plan is not None
        assert plan.decode_rows == (0,)
        assert [(chunk.row, chunk.start, chunk.end) for chunk in plan.chunks] == [(1, number * 4, number * 4 + 4)]


def test_a_prompt_decodes_in_the_step_after_its_last_chunk_even_before_the_result():
    loop = EngineLoop(prefill_chunk_tokens=4, is_overlapped=True)
    loop.submit(make_request("a", range(6), max_tokens=40))
    plans = [loop.scheduler.plan()]
    loop.runner.submit(plans[0])
    plans.append(loop.turn())
    plans.append(loop.turn())
    assert [(chunk.start, chunk.end, chunk.is_last) for plan in plans for chunk in plan.chunks] == [
        (0, 4, False),
        (4, 6, True),
    ]
    assert [plan.decode_rows for plan in plans] == [(), (), (0,)]


def test_starts_carry_what_the_device_needs():
    loop = EngineLoop(prefill_chunk_tokens=64)
    request = make_request("a", range(9), max_tokens=5, seed=42)
    loop.submit(request)
    loop.run()
    loop.submit(make_request("b", range(9), max_tokens=5, seed=43))
    plan = loop.turn()
    assert plan is not None
    (start,) = plan.starts
    assert (start.token_ids, start.num_computed_tokens, start.max_seq_len) == (tuple(range(9)), 8, 14)
    assert (start.seed, start.sampling) == (43, request.sampling)


def test_step_ids_count_plans():
    loop = EngineLoop()
    loop.submit(make_request("a", range(6)))
    plans = [loop.turn() for _ in range(3)]
    assert [plan.step_id for plan in plans if plan] == [0, 1, 2]
    loop.run()
    assert loop.scheduler.plan() is None
    loop.submit(make_request("b", range(6)))
    plan = loop.turn()
    assert plan is not None
    assert plan.step_id == len(loop.runner.plans) - 1


@pytest.mark.parametrize("is_overlapped", [False, True])
def test_a_plan_too_many_in_flight_is_an_error(is_overlapped):
    loop = EngineLoop(is_overlapped=is_overlapped)
    loop.submit(make_request("a", range(6), max_tokens=40))
    for _ in range(2 if is_overlapped else 1):
        assert loop.scheduler.plan() is not None
    with pytest.raises(EngineError, match="commit one first"):
        loop.scheduler.plan()


def test_a_row_always_has_pages_for_full_acceptance_of_every_step_in_flight():
    """num_computed_tokens + 2 (K + 1) + K under overlap, and never a page past the request's limit."""
    loop = EngineLoop(draft_len=3, is_overlapped=True, accept=accept_pattern([0]), prefill_chunk_tokens=64)
    loop.submit(make_request("a", range(6), max_tokens=34))
    state = loop.scheduler._state
    num_full = 0
    while loop.scheduler.has_work:
        plan = loop.scheduler.plan()
        if plan is not None:
            loop.runner.submit(plan)
            if plan.decode_rows:
                (decoding,) = state.running.values()
                num_ladders = sum(flight.max_emitted == 4 for flight in decoding.flights)
                num_known = len(decoding.ledger.tokens) + any(flight.max_emitted == 1 for flight in decoding.flights)
                expected = min(num_known - 1 + num_ladders * 4 + 3, 40)
                assert loop.cache.num_missing(0, expected) == 0
                assert loop.cache.num_missing(0, expected + 4) == 1 or expected > 36
                num_full += num_ladders == 2
        while len(loop.runner.pending) > (plan is not None):
            loop.commit_one()
    assert num_full > 10
    loop.assert_idle()


def test_no_step_is_planned_once_the_least_progress_reaches_the_limit():
    loop = EngineLoop(draft_len=0, is_overlapped=True, prefill_chunk_tokens=64)
    loop.submit(make_request("a", range(6), max_tokens=3))
    loop.run()
    assert [plan.decode_rows for plan in loop.runner.plans] == [(), (0,), (0,)]


def test_the_youngest_waits_for_pages_while_the_oldest_goes_on():
    loop = EngineLoop(num_pages=6, draft_len=0, prefill_chunk_tokens=64, enable_prefix=False, max_num_seqs=2)
    first, second = (
        make_request("a", range(8), max_tokens=14),
        make_request("b", range(40, 48), max_tokens=14),
    )
    loop.submit(first, second)
    while loop.cache.counts.num_free:
        loop.turn()
    num_second = len(loop.tokens("b"))
    num_first = len(loop.tokens("a"))
    loop.run()
    assert num_second < 14
    assert num_first < 14
    loop.assert_finished(first, second)
    assert loop.scheduler.stats().num_preemptions == loop.outputs["b"][-1].num_preemptions > 0
    assert loop.outputs["a"][-1].num_preemptions == 0


def test_what_becomes_free_is_kept_for_the_oldest_that_is_short():
    """A younger row and a newcomer could go on with the few free pages; an older row needs more than those."""
    loop = EngineLoop(
        draft_len=15,
        accept=lambda step_id, row, draft_len: (draft_len, draft_len if row == 0 else 0),
        prefill_chunk_tokens=64,
        max_num_seqs=3,
        max_model_len=400,
        num_pages=100,
    )
    loop.submit(make_request("a", range(8), max_tokens=380), make_request("b", range(50, 58), max_tokens=40))
    loop.turn()
    oldest, younger = loop.scheduler._state.by_age()
    missing = lambda item: loop.cache.num_missing(item.row, item.num_reserved_tokens(15, 1))  # noqa: E731
    while missing(oldest) != 4 or not 1 <= missing(younger) <= 3:
        loop.turn()
    cache = loop.cache
    cache.attach(50, cache.match([0]))  # somebody else holds the rest, and has given most of it up
    assert cache.ensure(50, cache.num_available * 4)
    cache.trim(50, 40, retire_step=1000)
    cache.trim(50, 28)
    cache.release(50, retire_step=1000)
    assert cache.num_available == 3
    loop.submit(make_request("c", [9], max_tokens=1))
    assert loop.scheduler.plan() is None
    cache.on_retired(1000)
    plan = loop.scheduler.plan()
    assert plan is not None
    assert (plan.decode_rows, rows_started(plan)) == ((0, 1), [2])


def rows_started(plan) -> list[int]:
    return [start.row for start in plan.starts]
