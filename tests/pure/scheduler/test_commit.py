from __future__ import annotations

import msgspec
import pytest

from slipstream.base.errors import EngineError, RequestError
from slipstream.frontend.status import error_of_output
from slipstream.scheduler.commit import cut_run
from slipstream.scheduler.lifecycle import Ledger
from slipstream.wire.step import NO_TOKEN_CODE, StepResult, TokenRun
from support.fake_runner import EngineLoop, accept_pattern, expected_stream, make_request

STOP = 77


def ledger(max_tokens: int, *, eos=()) -> Ledger:
    return Ledger.open(make_request("a", [1, 2], max_tokens=max_tokens, stop=[STOP], eos=eos), 0)


@pytest.mark.parametrize(
    ("max_tokens", "expected"),
    [
        (5, (3, "stop", STOP)),  # a stop before the limit wins, though the run crosses both
        (3, (3, "stop", STOP)),
        (2, (2, "length", None)),
        (1, (1, "length", None)),
        (9, (3, "stop", STOP)),
    ],
)
def test_a_run_is_cut_at_its_first_stop_or_limit(max_tokens, expected):
    assert cut_run(ledger(max_tokens), [10, 11, STOP, 20, 21, 22]) == expected


def test_a_run_without_an_end_is_kept_and_the_models_own_end_has_no_stop_reason():
    assert cut_run(ledger(7), [10, 11, 12]) == (3, None, None)
    assert cut_run(ledger(3), [10, 11, 12]) == (3, "length", None)
    assert cut_run(ledger(9, eos=[11]), [10, 11, 12]) == (2, "stop", None)


def decoding_loop(draft_len: int = 5, **request) -> EngineLoop:
    """Return a loop whose next result is that of request a's first ladder."""
    loop = EngineLoop(draft_len=draft_len, prefill_chunk_tokens=64)
    loop.submit(make_request("a", [1, 2], **request))
    loop.turn()
    return loop


def answer(loop: EngineLoop, *tokens: int, **fields):
    """Commit a made-up run for the row of request a, all its drafts accepted."""
    plan = loop.scheduler.plan()
    assert plan is not None
    run = TokenRun(row=0, token_ids=tokens, num_draft_tokens=len(tokens) - 1, num_accepted=len(tokens) - 1)
    run = msgspec.structs.replace(run, **fields)
    (output,) = loop.scheduler.commit(StepResult(step_id=plan.step_id, runs=(run,)))
    loop.cache.check()
    return output


def test_six_accepted_tokens_across_stop_and_limit():
    loop = decoding_loop(max_tokens=6, stop=[STOP], logprobs=0)  # one token is returned already: five are left
    output = answer(
        loop, 10, 11, STOP, 20, 21, 22, logprobs=(-1.0, -2.0, -3.0, -4.0, -5.0, -6.0)
    )  # fmt: skip
    assert output.token_ids == (10, 11, STOP)
    assert output.logprobs == (-1.0, -2.0, -3.0)
    assert (output.finish_reason, output.stop_reason) == ("stop", STOP)
    assert (output.num_draft_tokens, output.num_accepted, output.is_verify_step) == (5, 3, True)
    stats = loop.scheduler.stats()
    assert (stats.num_drafts, stats.num_draft_tokens, stats.num_accepted_tokens) == (1, 5, 3)
    assert stats.num_accepted_per_position == (1, 1, 1, 0, 0)
    assert stats.num_generated_tokens == 4
    loop.assert_idle()


def test_the_limit_cuts_ids_and_logprobs_alike():
    loop = decoding_loop(max_tokens=3, logprobs=0)
    output = answer(loop, 10, 11, 12, logprobs=(-1.0, -2.0, -3.0))
    assert (output.token_ids, output.logprobs, output.finish_reason) == ((10, 11), (-1.0, -2.0), "length")
    assert output.num_accepted == 2
    loop.assert_idle()


def test_logits_that_are_not_finite_end_one_request_and_forget_its_pages():
    loop = EngineLoop(broken_seeds=frozenset({13}), prefill_chunk_tokens=8, max_num_seqs=2)
    good, bad = make_request("good", range(20), seed=1), make_request("bad", range(50, 70), seed=13)
    loop.submit(good, bad)
    loop.run()
    loop.assert_finished(good)
    (output,) = loop.outputs["bad"]
    assert (output.token_ids, output.finish_reason) == ((), "error")
    assert output.error is not None
    assert "not finite" in output.error
    assert loop.scheduler.stats().num_corrupted_requests == 1
    assert loop.cache.match(bad.prompt_token_ids).num_tokens == 0
    assert loop.cache.match(good.prompt_token_ids).num_tokens > 0


def test_the_first_token_is_not_a_verify_step():
    loop = decoding_loop(max_tokens=3)
    (first,) = loop.outputs["a"]
    assert (first.is_verify_step, first.num_draft_tokens, len(first.token_ids)) == (False, 0, 1)
    assert answer(loop, 10).is_verify_step
    plain = decoding_loop(draft_len=0, max_tokens=3)
    assert not answer(plain, 10).is_verify_step


@pytest.mark.parametrize("num_accepted", range(10))
def test_commit_with_any_accepted_count_keeps_tables_and_frees_the_surplus(num_accepted):
    """Page size 4, K 9: every ladder crosses several pages."""
    for num_prompt in range(1, 10):
        loop = EngineLoop(draft_len=9, accept=accept_pattern([num_accepted]), prefill_chunk_tokens=64)
        request = make_request("a", range(num_prompt), max_tokens=60)
        loop.submit(request)
        loop.turn()
        loop.turn()
        num_computed = num_prompt + num_accepted + 1
        assert len(loop.tokens("a")) == num_accepted + 2
        assert loop.cache.counts.num_used == loop.cache.pages_for(num_computed + 9)
        loop.run()
        loop.assert_finished(request)
        loop.assert_idle()


def test_a_result_of_another_step_or_row_is_refused():
    loop = decoding_loop()
    with pytest.raises(EngineError, match="the oldest step in flight is none"):
        loop.scheduler.commit(StepResult(step_id=1, runs=()))
    plan = loop.scheduler.plan()
    assert plan is not None
    with pytest.raises(EngineError, match="result of step 9"):
        loop.scheduler.commit(StepResult(step_id=9, runs=()))
    with pytest.raises(EngineError, match=r"planned were \[0\]"):
        loop.scheduler.commit(StepResult(step_id=plan.step_id, runs=()))


@pytest.mark.parametrize(
    "fields",
    [
        {"token_ids": (1, 2, 3), "num_accepted": 1},
        {"token_ids": (), "num_accepted": -1},
        {"num_accepted": 1, "num_draft_tokens": 0},
        {"num_draft_tokens": 6},
        {"logprobs": (-1.0,)},
    ],
)
def test_a_run_that_contradicts_itself_is_refused(fields):
    with pytest.raises(EngineError, match="do not fit together"):
        answer(decoding_loop(), 10, 11, **fields)


def test_times_and_prefix_hits_are_reported_once():
    loop = EngineLoop(prefill_chunk_tokens=4, draft_len=0)
    loop.clock.now_s = 10.0
    first = make_request("a", range(9), max_tokens=3, arrival_s=7.0)
    second = make_request("b", range(9), max_tokens=3, arrival_s=7.0)
    loop.submit(first)
    loop.run()
    loop.submit(second)
    loop.run()
    assert loop.scheduler.stats().num_cached_prompt_tokens == 8
    news = loop.outputs["a"]
    assert [output.num_prefix_hit_tokens for output in loop.outputs["b"]] == [8, 0, 0]
    assert (news[-1].queue_s, news[-1].prefill_s, news[-1].decode_s) == (3.0, 2.0, 2.0)
    assert [output.queue_s for output in news[:-1]] == [0.0, 0.0]
    stats = loop.scheduler.stats()
    assert (stats.num_prefix_query_tokens, stats.num_prefix_hit_tokens, stats.num_prompt_tokens) == (18, 8, 18)


def test_pages_are_published_for_prompt_and_answer():
    loop = EngineLoop(draft_len=3, prefill_chunk_tokens=64)
    request = make_request("a", range(6), max_tokens=13)
    loop.submit(request)
    loop.run()
    history = (*request.prompt_token_ids, *expected_stream(request)[0])
    assert len(history) == 19
    # The last token is returned, but nothing computed it: 18 tokens fill four pages.
    assert loop.cache.match((*history, 0, 0)).num_tokens == 16


def test_alternatives_are_cut_like_tokens():
    loop = decoding_loop(max_tokens=3, logprobs=1)
    tops = (((10, -1.0),), ((11, -2.0),), ((12, -3.0),))
    output = answer(loop, 10, 11, 12, logprobs=(-1.0, -2.0, -3.0), top_logprobs=tops)
    assert (output.top_logprobs, output.finish_reason) == (tops[:2], "length")
    loop.assert_idle()


def test_alternatives_must_fit_the_tokens():
    loop = decoding_loop(max_tokens=9)
    with pytest.raises(EngineError, match="2 logprobs"):
        answer(loop, 10, 11, 12, top_logprobs=((), ()))


def test_a_constraint_that_cannot_go_on_ends_the_request_with_its_own_reason():
    """Its logits were sound: it is not counted as corrupted, and its pages stay good for others."""
    loop = decoding_loop(max_tokens=20)
    output = answer(loop, 5, is_finite=False, error="structured output cannot go on: no token can follow")
    assert (output.finish_reason, output.error) == ("error", "structured output cannot go on: no token can follow")
    assert output.token_ids == ()
    assert output.error_kind is None, "the request is not at fault"
    assert loop.scheduler.stats().num_corrupted_requests == 0
    loop.assert_idle()


def test_a_request_that_contradicts_itself_is_told_so():
    loop = decoding_loop(max_tokens=20)
    output = answer(loop, 5, is_finite=False, error="no token may come next", error_code=NO_TOKEN_CODE)
    assert (output.error_kind, output.error_code) == ("RequestError", NO_TOKEN_CODE)
    assert isinstance(error_of_output(output), RequestError)
    loop.assert_idle()


def split_loop() -> EngineLoop:
    """Return a loop with request a, which decodes, beside the first chunk of request b's prompt, launched."""
    loop = EngineLoop(draft_len=2, prefill_chunk_tokens=8)
    loop.submit(make_request("a", [1, 2], max_tokens=1 + 3))
    loop.turn()
    loop.submit(make_request("b", list(range(1, 30))))
    plan = loop.scheduler.plan()
    assert plan is not None
    assert plan.decode_rows
    assert plan.chunks
    loop.runner.submit(plan)
    return loop


def test_ladders_that_leave_first_free_nothing_before_their_step_has_retired():
    loop = split_loop()
    step_id = loop.runner.pending[0].step_id
    run = TokenRun(row=0, token_ids=(7, 8, 9), num_draft_tokens=2, num_accepted=2)
    loop.runner.pending[0].result = StepResult(step_id=step_id, runs=(run,))
    before = loop.scheduler.stats()
    ladders, _ = loop.runner.collect_ladders(step_id)
    (output,) = loop.scheduler.commit_ladders(ladders)
    assert (output.request_id, output.token_ids, output.finish_reason) == ("a", (7, 8, 9), "length")
    between = loop.scheduler.stats()
    assert loop.scheduler.num_steps_in_flight == 1
    assert (between.num_running, between.num_steps) == (1, before.num_steps)
    assert between.num_free_pages == before.num_free_pages
    assert between.num_generated_tokens == before.num_generated_tokens + 3
    assert loop.scheduler.commit(loop.runner.collect()) == []
    after = loop.scheduler.stats()
    assert loop.scheduler.num_steps_in_flight == 0
    assert after.num_steps == before.num_steps + 1
    assert after.num_free_pages > before.num_free_pages


def test_ladders_are_taken_in_once_and_alone():
    loop = split_loop()
    step_id = loop.runner.pending[0].step_id
    run = TokenRun(row=0, token_ids=(7,), num_draft_tokens=0, num_accepted=0)
    with pytest.raises(EngineError, match="returned runs of rows \\[\\], planned were \\[0\\]"):
        loop.scheduler.commit_ladders(StepResult(step_id=step_id, runs=()))
    with pytest.raises(EngineError, match=f"got the result of step {step_id + 1}"):
        loop.scheduler.commit_ladders(StepResult(step_id=step_id + 1, runs=(run,)))
    loop.scheduler.commit_ladders(StepResult(step_id=step_id, runs=(run,)))
    with pytest.raises(EngineError, match="returned runs of rows \\[0\\], planned were \\[\\]"):
        loop.scheduler.commit(StepResult(step_id=step_id, runs=(run,)))


def test_requests_that_are_sent_back_together_keep_their_order():
    loop = EngineLoop(draft_len=0, max_num_seqs=3)
    loop.submit(*(make_request(name, [1, 2], max_tokens=9) for name in "abc"))
    loop.turn()
    for running in loop.scheduler._state.by_age()[1:]:
        running.is_leaving = True
    loop.turn()
    assert loop.scheduler.request_ids == ("a", "b", "c")
    assert loop.scheduler.num_waiting == 2
