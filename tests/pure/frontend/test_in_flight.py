"""Requests in flight: each is told of once, with the engine's last word if there will be one."""

from __future__ import annotations

import asyncio

import pytest

from slipstream.base.errors import EngineError
from slipstream.frontend.call import Call
from slipstream.frontend.generation import Generation
from slipstream.frontend.in_flight import InFlight
from slipstream.frontend.processor import TextParts
from slipstream.frontend.stream import RequestStream
from slipstream.metrics.instruments import Instruments
from slipstream.wire.messages import RequestOutput
from slipstream.wire.request import Request
from slipstream.wire.sampling_params import SamplingParams
from support.fake_engine import fake_facts
from support.tiny_text import tiny_folder

TOKENIZER = TextParts.load(tiny_folder()).tokenizer
TIMES = {"queue_s": 0.1, "prefill_s": 0.2, "decode_s": 0.3}


def generation(request_id: str) -> Generation:
    request = Request(request_id=request_id, prompt_token_ids=(5, 6), sampling=SamplingParams(), seed=1, max_seq_len=9)
    return Generation(RequestStream(request, TOKENIZER), lambda: None)


def ends(live: InFlight, reason: str) -> float:
    name = f'vllm:request_success_total{{engine="0",finished_reason="{reason}",model_name="m"}} '
    text = live.instruments.render().decode()
    return next(float(line.removeprefix(name)) for line in text.splitlines() if line.startswith(name))


@pytest.fixture
def live():
    one = InFlight()
    one.instruments = Instruments("m", fake_facts())
    return one


def test_requests_of_one_name_get_ids_of_their_own(live):
    ids = [live.name_for(Call(name)) for name in ("a", "a", "b", "a-1")]
    assert len(set(ids)) == 4
    assert [id_.rpartition("-")[0] for id_ in ids] == ["a", "a", "b", "a-1"]


def test_a_request_that_ends_by_the_engine_is_told_at_once(live):
    call = Call("c")
    live.add(generation("a"), call)
    assert len(live) == 1
    assert "a" in live
    assert live.get("a").request_id == "a"
    live.idle.clear()
    live.retire("a", "length", RequestOutput(request_id="a", finish_reason="length", **TIMES))
    assert not live
    assert live.get("a") is None
    assert live.idle.is_set()
    assert ends(live, "length") == 1
    assert call.summary().queue_s == 0.1


def test_one_that_ends_earlier_waits_for_the_engines_last_word(live):
    call = Call("c")
    live.add(generation("a"), call)
    live.retire("a", "stop", None)
    assert (ends(live, "stop"), call.summary()) == (0, None)
    assert "a" in live, "the last word would end whoever took the id over"
    live.take_last_word(RequestOutput(request_id="a", token_ids=(4,)))
    live.take_last_word(RequestOutput(request_id="unknown", finish_reason="abort"))
    assert call.summary() is None
    live.take_last_word(RequestOutput(request_id="a", finish_reason="abort", **TIMES))
    live.take_last_word(RequestOutput(request_id="a", finish_reason="abort", **TIMES))
    assert "a" not in live
    assert (ends(live, "stop"), ends(live, "abort")) == (1, 0)
    assert (call.summary().num_requests, call.summary().decode_s) == (1, 0.3)


def test_when_the_engine_is_gone_nobody_waits_for_its_words(live):
    async def body():
        calls = [Call("c"), Call("d")]
        running = generation("b")
        live.add(generation("a"), calls[0])
        live.add(running, calls[1])
        live.add(generation("nobody's"), None)
        live.retire("a", "abort", None)
        live.fail_all(EngineError("gone"))
        live.expect_no_more()
        for call in calls:
            await asyncio.wait_for(call.wait_settled(), 1)
        assert [call.summary().finish_reasons for call in calls] == [("abort",), ("error",)]
        with pytest.raises(EngineError, match="gone"):
            await anext(running)
        assert live.request_ids == []

    asyncio.run(body())


def test_without_instruments_calls_are_told_all_the_same():
    live, call = InFlight(), Call("c")
    live.add(generation("a"), call)
    live.note_tokens("a")
    live.retire("a", "length", RequestOutput(request_id="a", finish_reason="length"))
    assert call.summary().finish_reasons == ("length",)


def test_news_of_a_request_become_its_deltas(live):
    one = generation("a")
    live.add(one, None)
    ids = tuple(TOKENIZER.encode_plain("AB"))
    assert not live.take(RequestOutput(request_id="a", token_ids=ids))
    assert not live.take(RequestOutput(request_id="b", token_ids=ids)), "nobody waits for it"
    assert not live.take(RequestOutput(request_id="a", finish_reason="length", **TIMES))
    assert "a" not in live
    assert ends(live, "length") == 1

    async def texts():
        return [delta.text async for delta in one]

    assert asyncio.run(texts()) == ["AB", ""]


def test_the_engine_is_told_of_a_stop_string_that_it_does_not_know_of(live):
    request = Request(
        request_id="a", prompt_token_ids=(5,), sampling=SamplingParams(stop=("B",)), seed=1, max_seq_len=9
    )
    ids = tuple(TOKENIZER.encode_plain("AB"))
    live.add(Generation(RequestStream(request, TOKENIZER), lambda: None), None)
    assert live.take(RequestOutput(request_id="a", token_ids=ids))
    assert live.get("a") is None
    live.add(Generation(RequestStream(request, TOKENIZER), lambda: None), None)
    assert not live.take(RequestOutput(request_id="a", token_ids=ids, finish_reason="length", **TIMES))
