"""The engine process: started as the server starts it, spoken to over its socket."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from pathlib import Path

import msgspec
import pytest
import zmq

from slipstream.cli.settings import settle
from slipstream.config.options import Options
from slipstream.engine import main
from slipstream.engine.client import ProcessClient
from slipstream.engine.spawn import start_process
from slipstream.engine.wake import Wake
from slipstream.text.grammar.guard import GUARD_MODULE
from slipstream.wire.codec import decode_to_frontend, encode
from slipstream.wire.grammar import GrammarSpec
from slipstream.wire.messages import EngineStats, Failed, Outputs, Progress, Ready, Shutdown
from slipstream.wire.request import Request
from slipstream.wire.sampling_params import SamplingParams
from support.processes import is_alive, wait_until
from support.tiny_llm import make_tiny_llm


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = make_tiny_llm(tmp_path_factory.mktemp("tiny"))
    return settle(Options(model=str(folder), threads=1, max_model_len=64, max_num_seqs=2))


def request(name, num_tokens):
    params = SamplingParams(temperature=0.0)
    return Request(request_id=name, prompt_token_ids=(5, 6, 7), sampling=params, seed=1, max_seq_len=3 + num_tokens)


def talk(config, *requests):
    """Start a process, send requests once it is ready, and return its messages until all have ended."""

    async def go():
        client, messages, running = ProcessClient(start_process(config)), [], {r.request_id for r in requests}
        try:
            while not messages or running:
                messages.append(await asyncio.wait_for(client.receive(), 60))
                if isinstance(messages[-1], Failed):
                    break
                if isinstance(messages[-1], Ready):
                    for one in requests:
                        client.submit(one)
                if isinstance(messages[-1], Outputs):
                    running -= {o.request_id for o in messages[-1].outputs if o.finish_reason is not None}
        finally:
            await client.close()
        return messages

    return asyncio.run(go())


def test_it_tells_of_loading_then_is_ready_then_answers(config):
    messages = talk(config, request("a", 5), request("b", 7), request("too long", 1000))
    kinds = [type(message) for message in messages]
    assert kinds.index(Progress) < kinds.index(Ready) < kinds.index(Outputs)
    outputs = [output for message in messages if isinstance(message, Outputs) for output in message.outputs]
    lengths = {name: sum(len(o.token_ids) for o in outputs if o.request_id == name) for name in ("a", "b", "too long")}
    assert lengths == {"a": 5, "b": 7, "too long": 0}
    reasons = {o.request_id: o.finish_reason for o in outputs if o.finish_reason is not None}
    assert reasons == {"a": "length", "b": "length", "too long": "error"}


def test_a_failure_while_loading_is_reported_with_its_kind(config, tmp_path):
    broken = msgspec.structs.replace(config, model=msgspec.structs.replace(config.model, path=str(tmp_path)))
    failed = talk(broken, request("a", 5))[-1]
    assert isinstance(failed, Failed)
    assert failed.kind == "CheckpointError"
    assert str(tmp_path) in failed.reason


def bound(name, spec, num_tokens):
    params = SamplingParams(temperature=0.0, grammar=spec)
    return msgspec.structs.replace(request(name, num_tokens), sampling=params)


def guards():
    """Process ids of the processes that grammars are tried in."""
    found = set()
    for place in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if place.name.isdigit() and GUARD_MODULE.encode() in (place / "cmdline").read_bytes():
                found.add(int(place.name))
    return {pid for pid in found if is_alive(pid)}


def test_constrained_requests_are_accepted_or_refused_and_the_guard_goes_with_the_engine(config):
    """The guard is started behind Ready, before anybody asks; other engines on this machine have guards of theirs."""
    before = guards()
    seen = set()

    async def go():
        process = start_process(config)
        client, outputs = ProcessClient(process), []
        try:
            while not isinstance(await asyncio.wait_for(client.receive(), 60), Ready):
                pass
            for one in (
                bound("a", GrammarSpec.regex("[0-9]{50}"), 5),
                bound("bad", GrammarSpec.regex("("), 5),
                request("free", 7),
            ):
                client.submit(one)
            while sum(output.finish_reason is not None for output in outputs) < 3:
                message = await asyncio.wait_for(client.receive(), 60)
                assert not isinstance(message, Failed), message
                outputs += message.outputs
            seen.update(guards() - before)
        finally:
            await client.close()
        return outputs

    outputs = asyncio.run(go())
    by_name = {name: [o for o in outputs if o.request_id == name] for name in ("a", "bad", "free")}
    assert by_name["a"][0].is_accepted
    assert sum(len(o.token_ids) for o in by_name["a"]) == 5
    assert [(o.error_kind, o.error_code) for o in by_name["bad"]] == [("RequestError", "invalid_grammar")]
    assert not any(o.is_accepted for o in by_name["free"])
    assert seen
    assert wait_until(lambda: not any(is_alive(pid) for pid in seen))


class Idle:
    """A core that compiles one thing and is asked for nothing else."""

    can_turn = False

    def __init__(self, wake, *, has_work=True):
        self.wake = wake
        self.has_work = has_work

    def stats(self):
        return EngineStats(num_waiting=int(self.has_work))


def test_an_idle_loop_is_woken_by_a_compilation_and_sleeps_again_after_it(monkeypatch):
    monkeypatch.setattr(main, "IDLE_POLL_MS", 30_000)
    wake, context = Wake(), zmq.Context()
    socket = context.socket(zmq.PAIR)
    socket.bind("inproc://nobody")
    timer = threading.Timer(0.05, wake.sound)
    timer.start()
    begun = time.monotonic()
    main._wait(Idle(wake), socket)
    assert time.monotonic() - begun < 15, "it slept on"
    timer.join()
    assert not wake.wait(0), "it would turn without end"
    socket.close(linger=0)
    context.term()
    wake.close()


@pytest.mark.parametrize("has_work", [True, False])
def test_an_engine_that_only_compiles_says_that_it_lives_and_an_idle_one_says_nothing(monkeypatch, has_work):
    """A long compilation would else be taken for a hang, and end the server."""
    monkeypatch.setattr(main, "HEARTBEAT_S", 0.02)
    monkeypatch.setattr(main, "IDLE_POLL_MS", 5)
    wake, context = Wake(), zmq.Context()
    ours, theirs = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
    ours.bind("inproc://front")
    theirs.connect("inproc://front")
    loop = threading.Thread(target=main._turn_until_told, args=(Idle(wake, has_work=has_work), theirs, os.getppid()))
    loop.start()
    heard = [decode_to_frontend(ours.recv()) for _ in range(3) if ours.poll(10_000 if has_work else 100)]
    assert heard == [Outputs(outputs=(), stats=EngineStats(num_waiting=1))] * (3 * has_work)
    ours.send(encode(Shutdown(drain=False)))
    loop.join(30)
    assert not loop.is_alive()
    for socket in (ours, theirs):
        socket.close(linger=0)
    context.term()
    wake.close()
