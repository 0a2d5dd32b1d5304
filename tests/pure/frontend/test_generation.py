"""A generation ends exactly once: with its last delta, an error, or its caller leaving."""

from __future__ import annotations

import asyncio

import pytest

from slipstream.base.errors import EngineError, RequestError
from slipstream.frontend.generation import Generation
from slipstream.frontend.processor import Processor, TextParts
from slipstream.frontend.stream import Delta, RequestStream
from slipstream.wire.grammar import GrammarSpec
from slipstream.wire.sampling_params import SamplingParams
from support.fake_engine import fake_facts
from support.tiny_text import tiny_folder

TEXT = TextParts.load(tiny_folder())


def make(closed: list[str]) -> Generation:
    request = Processor(TEXT, fake_facts()).make_request("a", (1,), SamplingParams())
    return Generation(RequestStream(request, TEXT.tokenizer), lambda: closed.append("a"))


def delta(text: str, finish_reason=None) -> Delta:
    return Delta(text=text, token_ids=(1,), finish_reason=finish_reason)


def run(body):
    return asyncio.run(asyncio.wait_for(body(), 10))


def test_deltas_come_in_order_and_end_with_the_last():
    async def body():
        closed: list[str] = []
        generation = make(closed)
        assert generation.request_id == "a"
        reading = asyncio.create_task(collect(generation))
        for text, reason in (("x", None), ("y", None), ("z", "stop")):
            generation.put(delta(text, reason))
            await asyncio.sleep(0)
        generation.put(delta("late"))
        generation.fail(EngineError("late"))
        generation.close()
        return await reading, closed

    assert run(body) == (["x", "y", "z"], [])


async def collect(generation: Generation) -> list[str]:
    return [item.text async for item in generation]


def test_an_error_comes_after_what_is_already_there():
    async def body():
        generation = make([])
        generation.put(delta("x"))
        generation.fail(EngineError("gone"))
        generation.fail(EngineError("gone twice"))
        assert (await anext(generation)).text == "x"
        for _ in range(2):
            with pytest.raises(EngineError, match=r"^gone$"):
                await anext(generation)

    run(body)


def test_closing_tells_once_and_ends_a_waiting_reader():
    async def body():
        closed: list[str] = []
        generation = make(closed)
        reading = asyncio.create_task(collect(generation))
        await asyncio.sleep(0)
        generation.close()
        generation.close()
        return await reading, closed

    assert run(body) == ([], ["a"])


def make_constrained(closed: list[str]) -> Generation:
    sampling = SamplingParams(grammar=GrammarSpec.regex("a"))
    request = Processor(TEXT, fake_facts()).make_request("a", (1,), sampling)
    return Generation(RequestStream(request, TEXT.tokenizer), lambda: closed.append("a"))


def test_a_free_request_is_accepted_at_once():
    async def body():
        generation = make([])
        await generation.wait_accepted()
        generation.fail(EngineError("later"))
        await generation.wait_accepted()

    run(body)


def test_a_constrained_request_is_waited_for_until_it_is_accepted():
    async def body():
        generation = make_constrained([])
        waiting = asyncio.create_task(generation.wait_accepted())
        await asyncio.sleep(0)
        assert not waiting.done()
        generation.accept()
        generation.put(delta("x", "stop"))
        await waiting
        assert await collect(generation) == ["x"]

    run(body)


def test_a_refusal_is_raised_to_whoever_waits():
    async def body():
        generation = make_constrained([])
        waiting = asyncio.create_task(generation.wait_accepted())
        await asyncio.sleep(0)
        generation.fail(RequestError("no such constraint"))
        with pytest.raises(RequestError, match="no such"):
            await waiting

    run(body)


def test_a_fault_after_acceptance_is_the_readers():
    async def body():
        generation = make_constrained([])
        generation.accept()
        generation.fail(EngineError("cannot go on"))
        await generation.wait_accepted()
        with pytest.raises(EngineError, match="cannot go on"):
            await anext(generation)

    run(body)
