"""`AsyncLLM`: many requests at once, one terminal event each, and nothing left running for nobody."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
from contextlib import asynccontextmanager

import pytest

from slipstream.base.errors import (
    CapacityError,
    CheckpointError,
    ContextLengthError,
    EngineError,
    OverloadedError,
    RequestError,
    SlipstreamError,
)
from slipstream.engine import spawn
from slipstream.frontend import async_llm as module
from slipstream.frontend.async_llm import MAX_TEXT_WORK, AsyncLLM
from slipstream.frontend.chat import ChatAsk
from slipstream.frontend.processor import TextParts
from slipstream.wire.messages import Failed, Outputs, Progress, RequestOutput, Stopped
from slipstream.wire.sampling_params import SamplingParams
from support.fake_engine import FakeClient, FakeConfig, FakeModelSection, ScriptedEngine, fake_facts
from support.processes import is_alive, python_path
from support.tiny_text import tiny_folder

TEXT = TextParts.load(tiny_folder())
LONG = SamplingParams(max_tokens=400, ignore_eos=True)
ASK = ChatAsk(messages=[{"role": "user", "content": "A"}])


@asynccontextmanager
async def serving(client: FakeClient, *, max_queue: int = 8, load_text=lambda: TEXT, **options):
    llm = AsyncLLM(client, load_text, model_name="tiny", max_queue=max_queue, **options)
    try:
        await llm.wait_ready()
        yield llm
    finally:
        await llm.close()
        await llm.close()
        assert client.num_closes == 2


def make_client(step_s: float = 0.0, script=None, **options) -> FakeClient:
    engine = ScriptedEngine(fake_facts()) if script is None else ScriptedEngine(fake_facts(), script)
    return FakeClient(engine, step_s=step_s, **options)


def run(body):
    return asyncio.run(asyncio.wait_for(body(), 60))


async def read(iterator) -> str:
    return "".join([delta.text async for delta in iterator])


def metric(llm: AsyncLLM, start: str) -> float:
    lines = [line for line in llm.render_metrics().decode().splitlines() if line.startswith(start)]
    assert lines, start
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def test_requests_run_side_by_side():
    async def body():
        async with serving(make_client()) as llm:
            prompts = [f"prompt number {n}" for n in range(10)]
            texts = await asyncio.gather(*(read(llm.generate(p, SamplingParams(max_tokens=99))) for p in prompts))
            assert texts == prompts
            assert llm.status.num_streams == 0
            assert metric(llm, 'vllm:request_success_total{engine="0",finished_reason="stop"') == 10
            assert metric(llm, "vllm:time_to_first_token_seconds_count") == 10
            assert metric(llm, "vllm:request_decode_time_seconds_count") == 10

    run(body)


def test_loading_is_told_and_requests_wait_for_nothing():
    async def body():
        told = []
        stages = [Progress(stage="weights", done=1, total=2), Progress(stage="warm-up", done=0, total=1)]
        client = make_client(loading=stages, is_held=True)
        llm = AsyncLLM(client, lambda: TEXT, model_name="tiny", max_queue=8, on_progress=told.append)
        while len(told) < 2:
            await asyncio.sleep(0.005)
        assert (llm.status.state, llm.status.progress) == ("loading", stages[1])
        assert llm.facts is None
        assert llm.render_metrics() == b""
        with pytest.raises(OverloadedError, match="loading"):
            await llm.open("A", SamplingParams())
        client.ready.set()
        await llm.wait_ready()
        assert llm.facts == client.engine.facts
        assert await read(llm.generate("A", SamplingParams())) == "A"
        await llm.close()
        assert told == stages

    run(body)


def test_a_caller_that_leaves_ends_its_request():
    async def body():
        client = make_client(step_s=0.001)
        async with serving(client) as llm:

            async def leave_soon(iterator):
                async for _ in iterator:
                    break
                await iterator.aclose()

            await leave_soon(llm.generate("ABC", LONG))
            task = asyncio.create_task(read(llm.generate("ABC", LONG)))
            await asyncio.sleep(0.02)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            generation = await llm.open("ABC", LONG)
            generation.close()
            await asyncio.sleep(0.02)
            assert client.engine.running == {}
            assert client.engine.num_aborts == 3
            assert metric(llm, 'vllm:request_success_total{engine="0",finished_reason="abort"') == 3
            assert metric(llm, "slipstream:streams") == 0
            assert await read(llm.generate("ABC", SamplingParams())) == "ABC"

    run(body)


def test_two_hundred_random_cancellations_leave_nothing_running():
    async def body():
        rng = random.Random(3)
        client = make_client(step_s=0.0005)
        async with serving(client, max_queue=500) as llm:

            async def leave_at_random():
                task = asyncio.create_task(read(llm.generate("ABC", LONG)))
                await asyncio.sleep(rng.random() * 0.02)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

            await asyncio.gather(*(leave_at_random() for _ in range(200)))
            await asyncio.sleep(0.02)
            assert client.engine.running == {}
            assert llm.status.num_streams == 0
            assert await read(llm.generate("ABC", SamplingParams())) == "ABC"

    run(body)


def test_a_stop_string_ends_the_request_in_the_engine_too():
    async def body():
        client = make_client(step_s=0.001)
        async with serving(client) as llm:
            generation = await llm.open("ABCD", SamplingParams(max_tokens=400, ignore_eos=True, stop=("CD",)))
            assert await read(generation) == "AB"
            await asyncio.sleep(0.02)
            assert client.engine.running == {}
            assert metric(llm, "vllm:request_queue_time_seconds_count") == 1

    run(body)


def test_beyond_rows_and_queue_requests_are_turned_away():
    async def body():
        client = make_client(step_s=0.001)
        async with serving(client, max_queue=2) as llm:
            assert llm.max_in_flight == 6
            held = [await llm.open("ABC", LONG) for _ in range(6)]
            for opening in (llm.open("A", LONG), llm.open_chat(ASK, LONG)):
                with pytest.raises(OverloadedError, match="6 requests") as caught:
                    await opening
                assert caught.value.retry_after_s >= 1
            assert metric(llm, 'vllm:admission_rejections_total{engine="0",model_name="tiny",reason="queue_full"') == 2
            held[0].close()
            (await llm.open("A", LONG)).close()
            for generation in held:
                generation.close()

    run(body)


def test_places_are_kept_while_prompts_are_tokenised():
    """Ten conversations at once, tokenised in threads, cannot slip past a limit of six."""

    async def body():
        async with serving(make_client(step_s=0.001), max_queue=2) as llm:
            opened = await asyncio.gather(*(llm.open_chat(ASK, LONG) for _ in range(10)), return_exceptions=True)
            refused = [item for item in opened if isinstance(item, OverloadedError)]
            assert len(refused) == 4
            for item in opened:
                if item not in refused:
                    item.close()

    run(body)


def test_a_bad_request_costs_nothing():
    async def body():
        client = make_client()
        async with serving(client, max_queue=2) as llm:
            for _ in range(20):
                with pytest.raises(RequestError):
                    await llm.open("", SamplingParams())
                with pytest.raises(RequestError):
                    await llm.open("A", SamplingParams(max_tokens=10**6))
            one = await llm.open("A", LONG, request_id="same")
            with pytest.raises(RequestError, match="in flight: give another"):
                await llm.open("A", LONG, request_id="same")
            one.close()
            assert len(client.engine.submitted) == 1

    run(body)


def test_an_id_is_free_again_once_the_engine_has_let_go_of_it():
    """Its last word about the first request would else end the second."""

    async def body():
        async with serving(make_client()) as llm:
            (await llm.open("A", LONG, request_id="same")).close()
            with pytest.raises(RequestError, match="in flight: give another"):
                await llm.open("A", LONG, request_id="same")
            while "same" in llm._live:
                await asyncio.sleep(0.001)
            again = await llm.open("ABC", SamplingParams(max_tokens=9), request_id="same")
            return "".join([delta.text async for delta in again])

    assert run(body) == "ABC"


LONG_TEXT = "the quick brown fox " * 2000
LARGE = {"max_model_len": 10**6, "num_cache_tokens": 10**6}


def large_client(**facts) -> FakeClient:
    return FakeClient(ScriptedEngine(fake_facts(**(LARGE | facts))))


def hold(llm: AsyncLLM, monkeypatch) -> tuple[threading.Event, list[int]]:
    """Make tokenising wait for the returned event; the list grows by one when it begins."""
    let_go, begun = threading.Event(), []

    def wait_first(tokenize):
        def held(*args, **options):
            begun.append(1)
            assert let_go.wait(30), "the event loop stood still while a prompt was tokenised"
            return tokenize(*args, **options)

        return held

    for name in ("tokenize", "prepare_chat"):
        monkeypatch.setattr(llm.processor, name, wait_first(getattr(llm.processor, name)))
    return let_go, begun


def opening(llm: AsyncLLM, is_chat: bool):
    if is_chat:
        return llm.open_chat(ASK, LONG)
    return llm.open(LONG_TEXT, SamplingParams(max_tokens=400, ignore_eos=True))


async def until(condition) -> None:
    while not condition():
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("is_chat", [False, True])
def test_the_loop_goes_on_while_a_prompt_is_tokenised(monkeypatch, is_chat):
    """Tokenising ends only after the loop has taken a hundred turns; on the loop itself it would never end."""

    async def body():
        async with serving(large_client()) as llm:
            let_go, begun = hold(llm, monkeypatch)
            task = asyncio.create_task(opening(llm, is_chat))
            await until(lambda: begun)
            for _ in range(100):
                await asyncio.sleep(0)
            let_go.set()
            (await task).close()

    run(body)


@pytest.mark.parametrize("is_chat", [False, True])
def test_a_client_that_leaves_keeps_its_place_until_its_prompt_is_tokenised(monkeypatch, is_chat):
    async def body():
        client = large_client(max_num_seqs=1)
        async with serving(client, max_queue=0) as llm:
            let_go, begun = hold(llm, monkeypatch)
            task = asyncio.create_task(opening(llm, is_chat))
            await until(lambda: begun)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            with pytest.raises(OverloadedError, match="1 request runs or waits"):
                await opening(llm, is_chat)
            let_go.set()
            await until(lambda: llm._opening.num_held == 0)
            (await opening(llm, is_chat)).close()
            assert len(client.engine.submitted) == 1

    run(body)


def test_a_text_that_can_never_fit_takes_no_thread():
    async def body():
        async with serving(make_client()) as llm:
            llm._opening.close()
            with pytest.raises(ContextLengthError, match="bytes of text"):
                await llm.open("x" * 10**6, LONG)

    run(body)


def test_other_work_on_text_is_bounded_and_takes_no_place_of_a_request(monkeypatch):
    async def body():
        async with serving(large_client(max_num_seqs=1), max_queue=0) as llm:
            let_go = threading.Event()
            tasks = [asyncio.create_task(llm.work_on_text(lambda: let_go.wait(30), 1)) for _ in range(MAX_TEXT_WORK)]
            await until(lambda: llm._text_work.num_held == MAX_TEXT_WORK)
            with pytest.raises(OverloadedError, match=f"{MAX_TEXT_WORK} texts"):
                await llm.work_on_text(lambda: None, 1)
            (await opening(llm, True)).close()
            let_go.set()
            assert all(await asyncio.gather(*tasks))

    run(body)


def test_without_a_queue_nothing_waits():
    async def body():
        async with serving(make_client(step_s=0.001), max_queue=0) as llm:
            held = [await llm.open("ABC", LONG) for _ in range(4)]
            with pytest.raises(OverloadedError, match="4 requests"):
                await llm.open("A", LONG)
            for generation in held:
                generation.close()

    run(body)


def test_the_end_of_the_engine_can_be_waited_for():
    async def body():
        client = make_client()
        async with serving(client) as llm:
            task = asyncio.create_task(llm.wait_dead())
            await asyncio.sleep(0.01)
            assert not task.done()
            client.tell(Failed(kind="KernelError", reason="it broke"))
            assert str(await task) == "the engine died: it broke"

    run(body)


@pytest.mark.parametrize("message", [Failed(kind="KernelError", reason="it broke"), Stopped()])
def test_the_death_of_the_engine_is_one_error_per_request(message):
    async def body():
        client = make_client(step_s=0.002)
        async with serving(client) as llm:
            tasks = [asyncio.create_task(read(llm.generate("ABC", LONG))) for _ in range(3)]
            await asyncio.sleep(0.02)
            client.tell(message)
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(error, EngineError) and "died" in str(error) for error in ended)
            assert llm.status.state == "dead"
            assert llm.status.reason
            assert metric(llm, 'vllm:request_success_total{engine="0",finished_reason="error"') == 3
            with pytest.raises(EngineError, match="not running"):
                await llm.open("A", LONG)
            with pytest.raises(SlipstreamError, match="broke|stopped"):
                await llm.wait_ready()

    run(body)


def test_one_failed_request_does_not_touch_the_others():
    async def body():
        client = make_client(step_s=0.002)
        async with serving(client) as llm:
            bad = await llm.open("ABC", LONG, request_id="bad")
            good = asyncio.create_task(read(llm.generate("ABC", SamplingParams(max_tokens=50))))
            await asyncio.sleep(0.01)
            client.engine.running.pop("bad")
            failed = RequestOutput(request_id="bad", finish_reason="error", error="the logits held NaN")
            client.tell(Outputs(outputs=(failed,), stats=client.engine.stats))
            with pytest.raises(EngineError, match="NaN"):
                await read(bad)
            assert await good == "ABC"

    run(body)


def test_draining_finishes_what_runs_and_refuses_the_rest():
    async def body():
        async with serving(make_client(step_s=0.002)) as llm:
            task = asyncio.create_task(read(llm.generate("ABCDEFGHIJ", SamplingParams(max_tokens=99))))
            await asyncio.sleep(0.01)
            draining = asyncio.create_task(llm.drain(30))
            await asyncio.sleep(0)
            with pytest.raises(OverloadedError, match="shutting down"):
                await llm.open("A", LONG)
            assert llm.status.state == "draining"
            assert await draining is True
            assert await task == "ABCDEFGHIJ"
            assert await llm.drain(30) is True

    run(body)


def test_draining_cuts_off_what_runs_too_long():
    async def body():
        client = make_client(step_s=0.01)
        async with serving(client) as llm:
            task = asyncio.create_task(read(llm.generate("ABC", LONG)))
            await asyncio.sleep(0.02)
            assert await llm.drain(0.02) is False
            with pytest.raises(OverloadedError, match="gave this request"):
                await task
            await asyncio.sleep(0.03)
            assert client.engine.running == {}

    run(body)


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("CapacityError", CapacityError),
        ("CheckpointError", CheckpointError),
        ("ValueError", EngineError),
        ("x", EngineError),
    ],
)
def test_a_failure_while_loading_keeps_its_class(kind, error):
    async def body():
        client = make_client(is_held=True)
        client.tell(Failed(kind=kind, reason="no room"))
        llm = AsyncLLM(client, lambda: TEXT, model_name="tiny", max_queue=8)
        with pytest.raises(error, match="no room"):
            await llm.wait_ready()
        with pytest.raises(EngineError, match="no room"):
            _ = llm.processor
        await llm.close()

    run(body)


def test_a_broken_tokenizer_is_reported():
    def load_text():
        raise CheckpointError("tokenizer.json is missing")

    async def body():
        client = make_client()
        llm = AsyncLLM(client, load_text, model_name="tiny", max_queue=8)
        with pytest.raises(CheckpointError, match="tokenizer.json"):
            await llm.wait_ready()
        await llm.close()
        assert client.num_closes == 1

    run(body)


def test_a_fault_of_the_reader_is_the_end_and_not_a_hang():
    async def body():
        client = make_client()
        async with serving(client) as llm:
            generation = await llm.open("ABC", LONG)
            client.tell(Outputs(outputs=("nonsense",), stats=client.engine.stats))
            with pytest.raises(EngineError, match="front end failed"):
                await read(generation)

    run(body)


def test_an_engine_process_of_its_own(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", python_path())
    monkeypatch.setattr(
        module, "start_process", lambda config: spawn.start_process(config, module="support.fake_engine")
    )

    async def body():
        llm = AsyncLLM.launch(FakeConfig(model=FakeModelSection(path=str(tiny_folder())), step_s=0.01))
        pid = llm._client._process.pid
        await llm.wait_ready()
        assert await read(llm.generate("ABC", SamplingParams())) == "ABC"
        task = asyncio.create_task(read(llm.generate("ABC", LONG)))
        await asyncio.sleep(0.05)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(EngineError, match="SIGKILL"):
            await task
        await llm.close()
        assert not is_alive(pid)

    run(body)
