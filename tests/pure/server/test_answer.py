"""Usage adds up, and log-probabilities are numbers that JSON can hold."""

from __future__ import annotations

import msgspec
import pytest

from slipstream.frontend.processor import Processor
from slipstream.frontend.stream import Delta, RequestStream
from slipstream.server.answer import chat_logprobs, collect, finite, prompt_logprobs_of, token_name, usage_of, visible
from slipstream.wire.messages import RequestOutput
from slipstream.wire.sampling_params import SamplingParams
from support.fake_engine import fake_facts
from support.http_world import TEXT, run

TOKENIZER = TEXT.tokenizer
A, B, C = TOKENIZER.encode_plain("ABC")
PART = TOKENIZER.encode_plain("é")[0]


def finished(prompt_len: int, num_prefix_hit_tokens: int) -> RequestStream:
    request = Processor(TEXT, fake_facts()).make_request("a", (1,) * prompt_len, SamplingParams())
    stream = RequestStream(request, TOKENIZER)
    stream.feed(RequestOutput(request_id="a", token_ids=(1,), num_prefix_hit_tokens=num_prefix_hit_tokens))
    last = RequestOutput(
        request_id="a",
        token_ids=(1, 2, 3),
        num_draft_tokens=4,
        num_accepted=2,
        is_verify_step=True,
        finish_reason="length",
    )
    stream.feed(last)
    return stream


def test_usage_of_several_requests_adds_up():
    usage = usage_of([finished(3, 0), finished(10, 8)])
    assert msgspec.to_builtins(usage) == {
        "prompt_tokens": 13,
        "completion_tokens": 8,
        "total_tokens": 21,
        "prompt_tokens_details": {"cached_tokens": 8},
        "completion_tokens_details": {
            "accepted_prediction_tokens": 4,
            "rejected_prediction_tokens": 4,
            "reasoning_tokens": 0,
        },
        "speculation": {"num_verify_steps": 2, "num_draft_tokens": 8, "num_accepted": 4, "num_emitted": 6},
    }


def test_a_prompt_of_several_choices_is_counted_once():
    usage = usage_of([finished(3, 0), finished(3, 2), finished(10, 8), finished(10, 9)], num_choices=2)
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (13, 16, 29)
    assert usage.prompt_tokens_details.cached_tokens == 8
    assert usage.speculation.num_draft_tokens == 16


async def deltas(*items: Delta):
    for item in items:
        yield item


FIRST = Delta(text="", token_ids=(A,))
SECOND = Delta(text="AB", token_ids=(B,))
LAST = Delta(text="", token_ids=(), finish_reason="stop", stop_reason="x")


def test_a_whole_answer_is_all_of_its_deltas():
    async def body():
        first = Delta(
            text="A",
            token_ids=(A,),
            logprobs=(-1.0,),
            top_logprobs=(((B, -2.0),),),
            prompt_logprobs=(-3.0,),
            prompt_top_logprobs=(((C, -4.0),),),
        )
        second = Delta(text="B", token_ids=(B,), logprobs=(-5.0,), top_logprobs=(((C, -6.0),),))
        assert await collect(deltas(first, second, LAST)) == Delta(
            text="AB",
            token_ids=(A, B),
            logprobs=(-1.0, -5.0),
            top_logprobs=(((B, -2.0),), ((C, -6.0),)),
            prompt_logprobs=(-3.0,),
            prompt_top_logprobs=(((C, -4.0),),),
            finish_reason="stop",
            stop_reason="x",
        )

    run(body)


def test_deltas_without_anything_to_see_are_left_out():
    async def body():
        scored = Delta(text="", token_ids=(A,), prompt_logprobs=(-1.0,))
        shown = [delta async for delta in visible(deltas(FIRST, SECOND, scored, LAST))]
        assert shown == [SECOND, scored, LAST]
        shown = [delta async for delta in visible(deltas(FIRST, SECOND, LAST), shows_ids=True)]
        assert shown == [FIRST, SECOND, LAST]

    run(body)


def test_impossible_tokens_have_a_finite_logprob():
    impossible = float("-inf")
    content = chat_logprobs(TOKENIZER, [A], [impossible], [((B, impossible),)]).content
    assert (content[0].logprob, content[0].top_logprobs[0].logprob) == (-9999.0, -9999.0)
    entries = prompt_logprobs_of(TOKENIZER, [A, B], [impossible])
    assert entries[1][str(B)].logprob == finite(impossible) == -9999.0
    assert finite(-1.5) == -1.5


@pytest.mark.parametrize("tops", [(), (((B, -0.5), (A, -1.0)), ((PART, -0.25),))])
def test_chat_tokens_with_their_alternatives(tops):
    content = chat_logprobs(TOKENIZER, [A, B], [-1.0, -2.0], tops).content
    assert [(one.token, one.logprob, one.bytes) for one in content] == [("A", -1.0, [65]), ("B", -2.0, [66])]
    shown = [[(top.token, top.logprob, top.bytes) for top in one.top_logprobs] for one in content]
    first_byte = list("é".encode())[:1]
    assert shown == ([[("B", -0.5, [66]), ("A", -1.0, [65])], [("\ufffd", -0.25, first_byte)]] if tops else [[], []])


def test_tokens_can_be_written_as_ids():
    (one,) = chat_logprobs(TOKENIZER, [A], [-1.0], [((B, -0.5),)], as_ids=True).content
    assert (one.token, one.top_logprobs[0].token) == (f"token_id:{A}", f"token_id:{B}")
    assert (token_name(TOKENIZER, A), token_name(TOKENIZER, A, as_ids=True)) == ("A", f"token_id:{A}")


def test_logprobs_that_were_not_asked_for_are_absent():
    assert chat_logprobs(TOKENIZER, [1], []) is None


def test_logprobs_of_a_prompt():
    """The token itself comes first; its rank is known when it is among the alternatives."""
    entries = prompt_logprobs_of(TOKENIZER, [A, B, C], [-1.0, -2.0], [((A, -0.5), (B, -1.0)), ((A, -0.5), (B, -1.0))])
    assert msgspec.to_builtins(entries) == [
        None,
        {
            str(B): {"logprob": -1.0, "rank": 2, "decoded_token": "B"},
            str(A): {"logprob": -0.5, "rank": 1, "decoded_token": "A"},
        },
        {
            str(C): {"logprob": -2.0, "decoded_token": "C"},
            str(A): {"logprob": -0.5, "rank": 1, "decoded_token": "A"},
            str(B): {"logprob": -1.0, "rank": 2, "decoded_token": "B"},
        },
    ]
    assert list(msgspec.to_builtins(entries[1])) == [str(B), str(A)]
    assert msgspec.to_builtins(prompt_logprobs_of(TOKENIZER, [A, B], [-1.0])) == [
        None,
        {str(B): {"logprob": -1.0, "decoded_token": "B"}},
    ]
    assert prompt_logprobs_of(TOKENIZER, [A], []) == [None]
