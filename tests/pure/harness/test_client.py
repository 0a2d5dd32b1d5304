from __future__ import annotations

import asyncio
import json

import httpx
import pytest

from slipstream.harness.client import HttpClient, read_speculation


class Stream(httpx.AsyncByteStream):
    """Parts of a body; between two of them the fake clock moves by a second."""

    def __init__(self, parts, clock):
        self._parts = parts
        self._clock = clock

    async def __aiter__(self):
        for part in self._parts:
            self._clock.now += 1.0
            yield part


class FakeClock:
    now = 100.0

    def __call__(self):
        return self.now


def event(**fields):
    return f"data: {json.dumps(fields)}\n\n".encode()


def text(piece, **fields):
    return event(choices=[{"index": 0, "delta": {"content": piece}, **fields}])


def send(handler, clock, body=None, **options):
    async def go():
        async with HttpClient(
            "http://test/v1/", clock=clock, transport=httpx.MockTransport(handler), **options
        ) as client:
            return await client.send("/v1/chat/completions", body or {"model": "m"}, domain="code")

    return asyncio.run(go())


def answer(clock, *parts):
    return lambda request: httpx.Response(200, stream=Stream(parts, clock))


USAGE = {
    "prompt_tokens": 5,
    "completion_tokens": 9,
    "speculation": {"num_verify_steps": 3, "num_draft_tokens": 12, "num_accepted": 6, "num_emitted": 8},
}


def test_a_stream_is_timed_and_counted():
    clock = FakeClock()
    role = event(choices=[{"index": 0, "delta": {"role": "assistant", "content": ""}}])
    last = event(choices=[{"index": 0, "delta": {}, "finish_reason": "length"}])
    parts = [b": comment\n\n", role, text("ab"), text("c"), last, event(choices=[], usage=USAGE), b"data: [DONE]\n\n"]
    record = send(answer(clock, *parts), clock)
    assert record.error is None
    assert record.arrivals_s == (3.0, 4.0)
    assert record.ttft_s == 3.0
    assert record.gaps_s == (1.0,)
    assert record.time_per_output_token_s == 1.0 / 8
    assert (record.num_prompt_tokens, record.num_output_tokens) == (5, 9)
    assert (record.num_verify_steps, record.num_draft_tokens, record.num_accepted) == (3, 12, 6)
    assert record.num_emitted == 8
    assert (record.finish_reason, record.domain) == ("length", "code")


def test_requests_stream_ask_for_usage_and_carry_the_key():
    seen = []

    def handler(request):
        seen.append(request)
        return httpx.Response(200, stream=Stream([b"data: [DONE]\n\n"], FakeClock()))

    send(handler, FakeClock(), {"model": "m", "max_tokens": 3}, api_key="secret")
    body = json.loads(seen[0].content)
    assert body == {"model": "m", "max_tokens": 3, "stream": True, "stream_options": {"include_usage": True}}
    assert seen[0].headers["authorization"] == "Bearer secret"
    assert str(seen[0].url) == "http://test/v1/chat/completions"


def test_without_usage_pieces_are_counted():
    clock = FakeClock()
    record = send(answer(clock, event(choices=[{"text": "a"}]), event(choices=[{"text": "b"}])), clock)
    assert record.num_output_tokens == 2
    assert record.num_verify_steps == 0


def test_reasoning_and_tool_calls_are_text():
    clock = FakeClock()
    parts = [
        event(choices=[{"delta": {"reasoning_content": "hm"}}]),
        event(choices=[{"delta": {"tool_calls": [{"index": 0}]}}]),
    ]
    assert len(send(answer(clock, *parts), clock).arrivals_s) == 2


def test_failures_are_recorded_not_raised():
    clock = FakeClock()
    refused = send(lambda request: httpx.Response(400, json={"error": {"message": "too long"}}), clock)
    assert refused.error == "HTTP 400: too long"
    plain = send(lambda request: httpx.Response(502, text="bad gateway"), clock)
    assert plain.error == "HTTP 502: bad gateway"
    broken = send(answer(clock, text("a"), event(error={"message": "engine ended"})), clock)
    assert broken.error == "engine ended"
    assert broken.arrivals_s

    def unreachable(request):
        raise httpx.ConnectError("refused", request=request)

    assert send(unreachable, clock).error == "ConnectError: refused"
    assert "JSONDecodeError" in (send(answer(clock, b"data: {\n\n"), clock).error or "")


def listed(models):
    async def go():
        transport = httpx.MockTransport(lambda request: httpx.Response(200, json={"data": models}))
        async with HttpClient("http://test", transport=transport) as client:
            return await client.list_models()

    return asyncio.run(go())


def test_models_are_listed_in_order():
    assert listed([{"id": "demo"}, {"id": "other"}]) == ("demo", "other")
    with pytest.raises(IndexError):
        listed([])


def test_usage_without_speculation_reads_as_zero():
    assert read_speculation({}) == (0, 0, 0, 0)
    assert read_speculation({"speculation": {"num_accepted": True}}) == (0, 0, 0, 0)
