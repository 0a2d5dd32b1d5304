"""The client of an engine process: messages both ways, and every kind of end reported once, within a second."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
import zmq

from slipstream.engine.client import DEATH_POLL_S, LAST_WORDS_S, ProcessClient
from slipstream.engine.spawn import start_process
from slipstream.wire.messages import Failed, Outputs, Progress, Ready, Stopped
from slipstream.wire.request import Request
from slipstream.wire.sampling_params import SamplingParams
from support.fake_engine import FakeConfig, FakeModelSection
from support.processes import is_alive, python_path


@pytest.fixture(autouse=True)
def _children_find_the_fake(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", python_path())


def with_client(body, max_silence_s=0.0, **fields):
    """Run a coroutine function with a client of a fake engine process; the process must be gone afterwards."""

    async def run():
        process = start_process(FakeConfig(model=FakeModelSection(path="x"), **fields), module="support.fake_engine")
        client = ProcessClient(process, max_silence_s=max_silence_s)
        try:
            return await body(client, process)
        finally:
            await client.close(grace_s=2)
            await client.close()
            assert not is_alive(process.pid)

    return asyncio.run(asyncio.wait_for(run(), 30))


def request(request_id: str = "a", max_seq_len: int = 6) -> Request:
    return Request(
        request_id=request_id, prompt_token_ids=(1, 2, 3), sampling=SamplingParams(), seed=1, max_seq_len=max_seq_len
    )


async def until_ready(client):
    news = [await client.receive()]
    while isinstance(news[-1], Progress):
        news.append(await client.receive())
    assert isinstance(news[-1], Ready)
    return news[:-1]


def test_a_request_goes_there_and_its_tokens_come_back():
    async def body(client, process):
        del process
        assert await until_ready(client) == [Progress(stage="weights", done=1, total=2)]
        client.submit(request())
        ids = []
        while True:
            news = await client.receive()
            assert isinstance(news, Outputs)
            ids += news.outputs[0].token_ids
            if news.outputs[0].finish_reason:
                return ids, news.outputs[0].finish_reason

    assert with_client(body) == ([1, 2, 3], "length")


def test_an_abort_is_answered():
    async def body(client, process):
        del process
        await until_ready(client)
        client.submit(request(max_seq_len=100_000))
        await client.receive()
        client.abort("a")
        client.abort("unknown")
        while True:
            news = await client.receive()
            if news.outputs[-1].finish_reason:
                return news.outputs[-1].finish_reason

    assert with_client(body, step_s=0.01) == "abort"


def test_a_killed_process_is_reported_within_a_second():
    assert DEATH_POLL_S + LAST_WORDS_S < 1

    async def body(client, process):
        await until_ready(client)
        os.kill(process.pid, signal.SIGKILL)
        news = await client.receive()
        client.submit(request())
        client.abort("a")
        return news, await client.receive()

    first, second = with_client(body)
    assert isinstance(first, Failed)
    assert "SIGKILL" in first.reason
    assert first == second


def test_a_stopped_process_is_reported_and_killed_at_once():
    async def body(client, process):
        await until_ready(client)
        os.kill(process.pid, signal.SIGSTOP)
        client.submit(request())
        news = await client.receive()
        begun = asyncio.get_running_loop().time()
        await client.close(grace_s=60)
        return news, asyncio.get_running_loop().time() - begun

    failed, close_s = with_client(body, max_silence_s=2 * DEATH_POLL_S)
    assert isinstance(failed, Failed)
    assert "hangs" in failed.reason
    assert close_s < 30


def test_a_process_that_works_is_not_silent():
    """Steps come much faster than the limit, all of them together take longer."""

    async def body(client, process):
        del process
        await until_ready(client)
        client.submit(request(max_seq_len=40))
        ends = []
        while not ends:
            news = await client.receive()
            assert isinstance(news, Outputs), news
            ends = [o.finish_reason for o in news.outputs if o.finish_reason]
        return ends

    assert with_client(body, max_silence_s=3 * DEATH_POLL_S, step_s=0.1) == ["length"]


def test_a_failure_while_loading_keeps_its_kind_and_reason():
    async def body(client, process):
        del process
        while True:
            news = await client.receive()
            if not isinstance(news, Progress):
                return news

    failed = with_client(body, fail="layer 3 is missing", fail_kind="CheckpointError")
    assert failed == Failed(kind="CheckpointError", reason="layer 3 is missing")


def test_a_silent_exit_is_reported_with_its_code():
    async def body(client, process):
        del process
        return [await client.receive(), await client.receive()][-1]

    failed = with_client(body, exit_code=7)
    assert isinstance(failed, Failed)
    assert "exit code 7" in failed.reason


def test_a_process_that_ignores_shutdown_is_killed():
    async def body(client, process):
        del process
        await until_ready(client)

    with_client(body, ignores_shutdown=True)


def test_after_close_it_says_stopped():
    async def body(client, process):
        del process
        await until_ready(client)
        waiting = asyncio.create_task(client.receive())
        await asyncio.sleep(0.05)
        await client.close(grace_s=2)
        return await waiting, await client.receive()

    assert with_client(body) == (Stopped(), Stopped())


def test_nonsense_from_the_process_is_a_failure():
    class Nonsense:
        """A process that is alive, and another socket that speaks for it."""

        address = "inproc://nonsense"
        pid = 0

        def exit_code(self):
            return None

        def close(self, grace_s):
            del grace_s

    async def run():
        client = ProcessClient(Nonsense())
        peer = zmq.Context.shadow(client._context.underlying).socket(zmq.PAIR)
        peer.connect(Nonsense.address)
        peer.send(b"\xff\xff")
        news = await client.receive()
        peer.close()
        await client.close()
        return news

    failed = asyncio.run(run())
    assert isinstance(failed, Failed)
    assert "2 bytes" in failed.reason
