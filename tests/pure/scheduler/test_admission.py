from __future__ import annotations

import msgspec
import pytest

from slipstream.base.errors import ContextLengthError, RequestError
from slipstream.cache.logical.prefix import PrefixIndex
from slipstream.scheduler.admission import make_room
from slipstream.scheduler.lifecycle import Decoding
from slipstream.wire.grammar import GrammarSpec
from support.fake_runner import EngineLoop, make_request


def rows_of(plan) -> list[int]:
    return [start.row for start in plan.starts]


def test_what_could_never_fit_is_refused_at_submit():
    loop = EngineLoop(num_pages=8, page_size=4, max_model_len=64)
    with pytest.raises(ContextLengthError, match="the context holds 64"):
        loop.submit(make_request("long", range(60), max_tokens=5))
    with pytest.raises(ContextLengthError, match="9 pages of 4: the cache has 8"):
        loop.submit(make_request("large", range(30), max_tokens=3))
    with pytest.raises(ContextLengthError, match="at least 1 is for the answer"):
        loop.submit(msgspec.structs.replace(make_request("full", range(30)), max_seq_len=30))
    with pytest.raises(RequestError, match="no tokens"):
        loop.submit(make_request("empty", []))
    loop.submit(make_request("fits", range(30), max_tokens=2))
    with pytest.raises(RequestError, match="request_id='fits' is in flight"):
        loop.submit(make_request("fits", [1]))
    loop.turn()
    with pytest.raises(RequestError, match="request_id='fits' is in flight"):
        loop.submit(make_request("fits", [1]))
    loop.run()
    loop.assert_idle()


def test_a_request_of_the_whole_cache_runs():
    loop = EngineLoop(num_pages=8, draft_len=9, is_overlapped=True)
    request = make_request("a", range(3), max_tokens=29)
    loop.submit(request)
    loop.run()
    loop.assert_finished(request)


def test_requests_start_in_order_as_rows_become_free():
    loop = EngineLoop(max_num_seqs=2, prefill_chunk_tokens=64)
    requests = [make_request(f"r{number}", range(number * 10, number * 10 + 5)) for number in range(5)]
    loop.submit(*requests)
    plan = loop.turn()
    assert plan is not None
    assert rows_of(plan) == [0, 1]
    assert (loop.scheduler.num_running, loop.scheduler.num_waiting) == (2, 3)
    loop.run()
    loop.assert_finished(*requests)
    assert [start.token_ids[0] for plan in loop.runner.plans for start in plan.starts] == [0, 10, 20, 30, 40]


def test_a_request_is_admitted_no_earlier_than_it_is_computed():
    """Of equal prompts that arrive together, the later ones find what the first has published."""
    loop = EngineLoop(prefill_chunk_tokens=8, max_num_seqs=4, draft_len=0)
    loop.submit(*(make_request(f"r{number}", range(17), max_tokens=4) for number in range(4)))
    plan = loop.turn()
    assert plan is not None
    assert rows_of(plan) == [0]
    loop.run()
    hits = [loop.outputs[f"r{number}"][0].num_prefix_hit_tokens for number in range(4)]
    assert hits == [0, 16, 16, 16]


def test_two_requests_with_one_prefix_in_one_step_do_not_hit_unwritten_pages():
    loop = EngineLoop(prefill_chunk_tokens=64, is_overlapped=True)
    first, second, third = (make_request(name, range(17), max_tokens=9) for name in "abc")
    loop.submit(first, second)
    plan = loop.turn()
    assert plan is not None
    assert [start.num_computed_tokens for start in plan.starts] == [0, 0]
    # Step 0 is in flight: what it writes is not findable before it has retired.
    loop.submit(third)
    plan = loop.turn()
    assert plan is not None
    assert [start.num_computed_tokens for start in plan.starts] == [0]
    loop.run()
    loop.assert_finished(first, second, third)


def test_a_short_prompt_does_not_wait_for_a_long_one():
    loop = EngineLoop(prefill_chunk_tokens=8, max_model_len=512, num_pages=200)
    loop.submit(make_request("long", [number % 90 for number in range(400)], max_tokens=4))
    loop.turn()
    loop.submit(make_request("short", range(4), max_tokens=4))
    loop.turn()
    assert len(loop.tokens("short")) == 1
    assert loop.tokens("long") == ()


def test_two_long_prompts_that_both_fit_both_run():
    """A cache for 2.4 long requests runs two at once, not one."""
    long_tokens = [number % 89 for number in range(1000)]
    loop = EngineLoop(
        num_pages=602, page_size=4, max_num_seqs=8, prefill_chunk_tokens=64, max_model_len=1024, draft_len=3
    )
    requests = [
        make_request(f"r{number}", [number, *long_tokens[1:]], max_tokens=20, seed=number) for number in range(3)
    ]
    loop.submit(*requests)
    num_running: list[int] = []
    while loop.scheduler.has_work:
        loop.turn()
        num_running.append(loop.scheduler.num_running)
    assert max(num_running) == 2
    decoding_together = [
        plan for plan in loop.runner.plans if {0, 1} <= {*plan.decode_rows, *(chunk.row for chunk in plan.chunks)}
    ]
    assert decoding_together
    assert loop.scheduler.stats().num_preemptions == 0
    loop.assert_finished(*requests)


def test_a_newcomer_leaves_a_page_for_every_decoding_row():
    loop = EngineLoop(num_pages=6, draft_len=0, prefill_chunk_tokens=64, enable_prefix=False)
    loop.submit(make_request("a", range(5), max_tokens=9))
    loop.turn()
    loop.submit(make_request("b", range(20, 36), max_tokens=1))
    plan = loop.turn()
    assert plan is not None
    assert plan.starts == ()
    assert loop.cache.counts.num_free == 4  # as many as the newcomer needs
    loop.abort("b")
    loop.submit(make_request("c", range(20, 32), max_tokens=1))
    plan = loop.turn()
    assert plan is not None
    assert rows_of(plan) == [1]


def test_a_stalled_head_is_tried_again_when_pages_move_or_the_head_changes():
    loop = EngineLoop(num_pages=6, draft_len=0, prefill_chunk_tokens=64, max_num_seqs=3)
    loop.submit(make_request("a", range(12), max_tokens=6))
    loop.turn()
    loop.submit(make_request("b", range(50, 66), max_tokens=2), make_request("c", range(70, 73), max_tokens=2))
    for _ in range(3):
        plan = loop.turn()
        assert plan is not None
        assert plan.starts == ()
    loop.abort("b")
    plan = loop.turn()
    assert plan is not None
    assert rows_of(plan) == [1]
    loop.run()
    loop.assert_idle()


def test_a_head_that_waits_for_budget_does_not_hash_its_prompt_at_every_step(monkeypatch):
    """A long stored prefix is looked up once; each further step asks for the page after it only."""
    loop = EngineLoop(num_pages=200, draft_len=0, prefill_chunk_tokens=8, max_model_len=512)
    stored = [number % 83 for number in range(160)]
    loop.submit(make_request("a", stored, max_tokens=2))
    loop.run()
    num_found: list[int] = []
    find = PrefixIndex.find
    monkeypatch.setattr(PrefixIndex, "find", lambda *given: num_found.append(1) or find(*given))
    older = make_request("b", [89 - number % 7 for number in range(80)], max_tokens=2)
    head = make_request("c", [*stored, *(number % 79 for number in range(100))], max_tokens=2)
    loop.submit(older)
    loop.turn()
    loop.submit(head)
    counts: list[int] = []
    while loop.scheduler.num_waiting:
        num_found.clear()
        loop.turn()
        counts.append(len(num_found))
    assert len(counts) > 5, "the head did not wait: the test would prove little"
    assert counts[0] == 160 // 4 + 1
    assert max(counts[1:-1]) == 1
    assert counts[-1] == 2, "the step that admits it looks once more when it takes the pages"
    loop.run()
    loop.assert_finished(older, head)
    assert loop.outputs["c"][0].num_prefix_hit_tokens == 160


@pytest.mark.parametrize("is_overlapped", [False, True])
def test_preemption_takes_the_youngest_and_loses_nothing(is_overlapped):
    loop = EngineLoop(num_pages=12, draft_len=2, prefill_chunk_tokens=64, max_num_seqs=3, is_overlapped=is_overlapped)
    requests = [make_request(f"r{number}", range(number * 20, number * 20 + 6), max_tokens=24) for number in range(3)]
    loop.submit(*requests)
    loop.run()
    loop.assert_finished(*requests)
    counts = [loop.outputs[f"r{number}"][-1].num_preemptions for number in range(3)]
    assert counts[0] == 0
    assert counts[2] > 0
    assert loop.scheduler.stats().num_preemptions == sum(counts)
    restarts = [start for plan in loop.runner.plans for start in plan.starts if len(start.token_ids) > 6]
    assert len(restarts) == sum(counts)
    assert all(start.max_seq_len == 30 for start in restarts)
    loop.assert_idle()


def test_a_victim_with_a_result_in_flight_is_drained_first():
    loop = EngineLoop(draft_len=2, prefill_chunk_tokens=64, max_num_seqs=2, is_overlapped=True)
    loop.submit(make_request("a", range(6), max_tokens=40), make_request("b", range(20, 26), max_tokens=40))
    for _ in range(3):
        loop.turn()
    state = loop.scheduler._state
    needy, victim = state.by_age()
    assert isinstance(needy, Decoding)
    assert victim.flights
    num_coming = loop.cache.num_available + loop.cache.num_deferred
    assert not make_room(state, needy, num_coming)  # given up already: worth the wait
    assert not victim.is_leaving
    assert not make_room(state, needy, num_coming + 1)
    assert victim.is_leaving
    assert not make_room(state, needy, num_coming + 1)  # one victim at a time
    assert not needy.is_leaving
    num_tokens = len(loop.tokens("b"))
    plan = loop.turn()
    assert plan is not None
    assert plan.decode_rows == (needy.row,)
    assert len(loop.tokens("b")) > num_tokens  # its last result was kept
    assert loop.scheduler.request_ids == ("a", "b")
    assert loop.scheduler.num_waiting == 1
    loop.run()
    loop.assert_idle()


def test_a_victim_in_prefill_is_drained_too_and_finds_its_pages_again():
    loop = EngineLoop(draft_len=2, prefill_chunk_tokens=8, max_num_seqs=2, is_overlapped=True)
    first, second = make_request("a", range(6), max_tokens=40), make_request("b", range(20, 60), max_tokens=9)
    loop.submit(first)
    loop.turn()
    loop.turn()
    loop.submit(second)
    loop.turn()
    state = loop.scheduler._state
    needy, victim = state.by_age()
    assert isinstance(needy, Decoding)
    assert not make_room(state, needy, loop.cache.num_available + loop.cache.num_deferred + 1)
    assert victim.is_leaving
    plan = loop.turn()
    assert plan is not None
    assert plan.chunks == ()
    assert loop.scheduler.num_waiting == 1
    loop.run()
    loop.assert_finished(first, second)
    assert [start.num_computed_tokens for plan in loop.runner.plans for start in plan.starts] == [0, 0, 8]
    assert loop.outputs["b"][0].num_prefix_hit_tokens == 0


def test_a_victim_with_nothing_in_flight_ends_at_once():
    loop = EngineLoop(draft_len=2, prefill_chunk_tokens=64, max_num_seqs=2)
    loop.submit(make_request("a", range(6), max_tokens=40), make_request("b", range(20, 26), max_tokens=40))
    loop.turn()
    state = loop.scheduler._state
    needy, victim = state.by_age()
    assert isinstance(needy, Decoding)
    assert isinstance(victim, Decoding)
    assert not make_room(state, victim, loop.cache.num_available + 1)  # nobody is younger
    assert make_room(state, needy, loop.cache.num_available + 1)
    assert loop.scheduler.num_waiting == 1


def test_a_preempted_request_finds_its_own_pages_again():
    loop = EngineLoop(num_pages=14, draft_len=0, prefill_chunk_tokens=64, max_num_seqs=2)
    requests = [make_request(name, range(start, start + 12), max_tokens=30) for name, start in (("a", 0), ("b", 50))]
    loop.submit(*requests)
    loop.run()
    loop.assert_finished(*requests)
    restarts = [start for plan in loop.runner.plans for start in plan.starts if len(start.token_ids) > 12]
    assert restarts
    # What a request finds of itself is no hit of its prompt.
    assert loop.outputs["b"][0].num_prefix_hit_tokens == 0
    assert loop.scheduler.stats().num_prefix_query_tokens == 24


def test_a_row_is_told_whose_constraint_it_follows_also_after_a_preemption():
    loop = EngineLoop(num_pages=10, page_size=4, max_num_seqs=2, draft_len=2, prefill_chunk_tokens=64)
    free = make_request("free", range(6), max_tokens=24)
    bound = make_request("bound", range(20, 26), max_tokens=24)
    grammar = GrammarSpec.json_object()
    bound = msgspec.structs.replace(bound, sampling=msgspec.structs.replace(bound.sampling, grammar=grammar))
    loop.submit(free, bound)
    loop.run()
    starts = [start for plan in loop.runner.plans for start in plan.starts]
    told = {(start.token_ids[0], start.grammar_id) for start in starts}
    assert told == {(0, None), (20, "bound")}
    assert len(starts) > 2, "nobody was preempted"
    again = [start for start in starts if start.grammar_id and len(start.token_ids) > 6]
    assert again
    assert {start.num_prompt_tokens for start in again} == {6}
    loop.assert_finished(free, bound)
