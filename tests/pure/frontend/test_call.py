"""A call is settled when all its requests have ended, and sums them up."""

from __future__ import annotations

import asyncio

from slipstream.frontend.call import Call
from slipstream.metrics.instruments import Phases, RequestEnd


def end(reason="stop", **fields) -> RequestEnd:
    given = {
        "num_prompt_tokens": 5,
        "num_generated_tokens": 3,
        "num_prefix_hit_tokens": 2,
        "max_tokens": 9,
        "e2e_s": 1.0,
        "after_first_token_s": 0.5,
        "num_verify_steps": 2,
        "num_emitted": 5,
    }
    return RequestEnd(finish_reason=reason, **(given | fields))


def test_a_call_without_requests_is_settled_and_has_nothing_to_sum_up():
    call = Call("a")
    asyncio.run(asyncio.wait_for(call.wait_settled(), 1))
    assert call.summary() is None


def test_it_is_settled_when_the_last_request_has_ended():
    async def body():
        call = Call("a")
        call.begin()
        call.begin()
        waiting = asyncio.ensure_future(call.wait_settled())
        call.end(end())
        await asyncio.sleep(0)
        assert not waiting.done()
        call.end(end())
        await asyncio.wait_for(waiting, 1)
        call.begin()
        again = asyncio.ensure_future(call.wait_settled())
        await asyncio.sleep(0)
        assert not again.done()
        call.end(end())
        await asyncio.wait_for(again, 1)

    asyncio.run(body())


def test_counts_add_up_and_times_are_those_of_the_slowest():
    call = Call("a")
    for one in (
        end(phases=Phases(0.1, 0.5, 2.0), first_token_s=0.6),
        end("length", phases=Phases(0.3, None, None), num_verify_steps=3, num_emitted=3),
        end("stop"),
    ):
        call.begin()
        call.end(one)
    summary = call.summary()
    assert (summary.num_requests, summary.num_prompt_tokens, summary.num_prefix_hit_tokens) == (3, 15, 6)
    assert (summary.num_generated_tokens, summary.finish_reasons) == (9, ("stop", "length"))
    assert (summary.queue_s, summary.prefill_s, summary.decode_s, summary.first_token_s) == (0.3, 0.5, 2.0, 0.6)
    assert summary.acceptance_length == 13 / 7


def test_what_nobody_reached_is_none():
    call = Call("a")
    call.begin()
    call.end(end("error", num_verify_steps=0, num_emitted=0))
    summary = call.summary()
    assert (summary.queue_s, summary.prefill_s, summary.decode_s) == (None, None, None)
    assert (summary.first_token_s, summary.acceptance_length) == (None, None)
