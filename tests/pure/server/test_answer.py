"""Usage adds up, and log-probabilities are numbers that JSON can hold."""

from __future__ import annotations

import msgspec

from slipstream.frontend.processor import Processor
from slipstream.frontend.stream import RequestStream
from slipstream.server.answer import chat_logprobs, completion_logprobs, usage_of
from slipstream.wire.messages import RequestOutput
from slipstream.wire.sampling_params import SamplingParams
from support.fake_engine import fake_facts
from support.http_world import TEXT


def finished(prompt_len: int, num_prefix_hit_tokens: int) -> RequestStream:
    request = Processor(TEXT, fake_facts()).make_request("a", (1,) * prompt_len, SamplingParams())
    stream = RequestStream(request, TEXT.tokenizer)
    stream.feed(RequestOutput(request_id="a", token_ids=(1,), num_prefix_hit_tokens=num_prefix_hit_tokens))
    run = RequestOutput(
        request_id="a",
        token_ids=(1, 2, 3),
        num_draft_tokens=4,
        num_accepted=2,
        is_verify_step=True,
        finish_reason="length",
    )
    stream.feed(run)
    return stream


def test_usage_of_several_requests_adds_up():
    usage = usage_of([finished(3, 0), finished(10, 8)])
    assert msgspec.to_builtins(usage) == {
        "prompt_tokens": 13,
        "completion_tokens": 8,
        "total_tokens": 21,
        "prompt_tokens_details": {"cached_tokens": 8},
        "completion_tokens_details": {"accepted_prediction_tokens": 4, "rejected_prediction_tokens": 4},
        "speculation": {"num_verify_steps": 2, "num_draft_tokens": 8, "num_accepted": 4, "num_emitted": 6},
    }


def test_impossible_tokens_have_a_finite_logprob():
    content = chat_logprobs(TEXT.tokenizer, [1], [float("-inf")]).content
    assert content[0].logprob == -9999.0
    logprobs, _ = completion_logprobs(TEXT.tokenizer, [1], [float("-inf")])
    assert msgspec.json.decode(msgspec.json.encode(logprobs))["token_logprobs"] == [-9999.0]


def test_offsets_go_on_from_chunk_to_chunk():
    ids = TEXT.tokenizer.encode_plain("ABC")
    first, offset = completion_logprobs(TEXT.tokenizer, ids, [-1.0] * 3, 5)
    second, offset = completion_logprobs(TEXT.tokenizer, ids[:1], [-1.0], offset)
    assert (first.text_offset, second.text_offset, offset) == ([5, 6, 7], [8], 9)


def test_logprobs_that_were_not_asked_for_are_absent():
    assert chat_logprobs(TEXT.tokenizer, [1], []) is None
    assert completion_logprobs(TEXT.tokenizer, [1], [], 3) == (None, 3)
