"""`AsyncLLM` and constraints: open means compiled, a refusal is raised at once, and who leaves leaves nothing."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from slipstream.base.errors import EngineError, OverloadedError, RequestError
from slipstream.frontend.async_llm import AsyncLLM
from slipstream.frontend.chat import ChatAsk
from slipstream.frontend.processor import TextParts
from slipstream.wire.grammar import GrammarSpec
from slipstream.wire.messages import Failed
from slipstream.wire.sampling_params import SamplingParams
from support.fake_engine import FakeClient, ScriptedEngine, fake_facts
from support.tiny_text import tiny_folder

TEXT = TextParts.load(tiny_folder())


@asynccontextmanager
async def serving(client: FakeClient):
    llm = AsyncLLM(client, lambda: TEXT, model_name="tiny", max_queue=8)
    try:
        await llm.wait_ready()
        yield llm
    finally:
        await llm.close()


def make_client(step_s: float = 0.0) -> FakeClient:
    return FakeClient(ScriptedEngine(fake_facts()), step_s=step_s)


def run(body):
    return asyncio.run(asyncio.wait_for(body(), 60))


async def read(iterator) -> str:
    return "".join([delta.text async for delta in iterator])


def bound(text: str, **more) -> SamplingParams:
    return SamplingParams(grammar=GrammarSpec.regex(text), **more)


def test_a_constrained_request_is_open_once_it_is_accepted():
    async def body():
        client = make_client(step_s=0.001)
        async with serving(client) as llm:
            opening = asyncio.create_task(llm.open("ABC", bound("slow")))
            assert await read(llm.generate("A", SamplingParams())) == "A", "others do not wait for it"
            assert not opening.done()
            assert llm.status.num_streams == 1
            client.engine.is_slow = False
            client._work.set()
            assert await read(await opening) == "ABC"
            assert await read(await llm.open_chat(ask("hi"), bound("quick")))

    run(body)


@pytest.mark.parametrize(("text", "error"), [("bad", RequestError), ("many", OverloadedError)])
def test_a_refused_constraint_is_raised_before_anything_is_returned(text, error):
    async def body():
        client = make_client()
        async with serving(client) as llm:
            for opening in (llm.open("A", bound(text)), llm.open_chat(ask("A"), bound(text))):
                with pytest.raises(error, match=f"cannot be used: {text}") as caught:
                    await opening
            if error is RequestError:
                assert caught.value.code == "invalid_grammar"
            assert llm.status.num_streams == 0
            assert client.engine.num_aborts == 0, "there is nothing to end"
            assert await read(llm.generate("A", SamplingParams())) == "A"

    run(body)


def test_a_caller_that_leaves_while_its_constraint_is_compiled_ends_the_request():
    async def body():
        client = make_client(step_s=0.001)
        async with serving(client) as llm:
            opening = asyncio.create_task(llm.open("ABC", bound("slow")))
            while not client.engine.compiling:
                await asyncio.sleep(0.001)
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
            await asyncio.sleep(0.01)
            assert client.engine.compiling == {}
            assert llm.status.num_streams == 0

    run(body)


def test_the_death_of_the_engine_ends_who_waits_for_a_compilation():
    async def body():
        client = make_client(step_s=0.001)
        async with serving(client) as llm:
            opening = asyncio.create_task(llm.open("ABC", bound("slow")))
            while not client.engine.compiling:
                await asyncio.sleep(0.001)
            client.tell(Failed(kind="EngineError", reason="told to die"))
            with pytest.raises(EngineError, match="told to die"):
                await opening

    run(body)


def test_choices_are_all_accepted_or_none_runs_on():
    async def body():
        client = make_client(step_s=0.001)
        async with serving(client) as llm:
            generations = await llm.open_chat_choices(ask("hi"), bound("quick", n=2, max_tokens=3))
            for generation in generations:
                await read(generation)
            with pytest.raises(RequestError, match="cannot be used"):
                await llm.open_chat_choices(ask("hi"), bound("bad", n=2))
            await asyncio.sleep(0.01)
            assert client.engine.running == client.engine.compiling == {}
            assert llm.status.num_streams == 0

    run(body)


def ask(text: str) -> ChatAsk:
    return ChatAsk(messages=[{"role": "user", "content": text}])
