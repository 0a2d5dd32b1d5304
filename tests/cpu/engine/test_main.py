"""The engine process: started as the server starts it, spoken to over its socket."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from slipstream.cli.settings import settle
from slipstream.config.options import Options
from slipstream.engine.client import ProcessClient
from slipstream.engine.spawn import start_process
from slipstream.wire.messages import Failed, Outputs, Progress, Ready
from slipstream.wire.request import Request
from slipstream.wire.sampling_params import SamplingParams
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
