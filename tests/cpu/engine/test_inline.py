from __future__ import annotations

import msgspec
import pytest

from slipstream.base.errors import CheckpointError
from slipstream.cli.settings import settle
from slipstream.config.options import Options
from slipstream.engine import inline
from slipstream.wire.grammar import GrammarSpec
from slipstream.wire.messages import Abort, Outputs, Progress, Ready, Shutdown, Stopped, Submit
from slipstream.wire.request import Request
from slipstream.wire.sampling_params import SamplingParams
from support.tiny_llm import make_tiny_llm


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = make_tiny_llm(tmp_path_factory.mktemp("tiny"))
    return settle(Options(model=str(folder), threads=1, max_model_len=64, max_num_seqs=2))


@pytest.fixture
def engine(config):
    engine = inline.create(config, lambda progress: None)
    yield engine
    engine.close()


def request(name, num_tokens=4):
    params = SamplingParams(temperature=0.0)
    return Request(request_id=name, prompt_token_ids=(5, 6, 7), sampling=params, seed=1, max_seq_len=3 + num_tokens)


def collect(engine, name):
    outputs = []
    while not outputs or outputs[-1].finish_reason is None:
        for message in engine.poll():
            if isinstance(message, Outputs):
                outputs += [output for output in message.outputs if output.request_id == name]
    return outputs


def test_the_first_message_is_ready_with_the_facts(config, engine):
    ready = engine.poll()
    assert isinstance(ready[0], Ready)
    assert ready[0].facts.max_model_len == 64
    assert ready[0].facts.vocab_size == config.model.target.vocab_size
    assert engine.poll() == []


def test_requests_run_while_polled_by_method_and_by_message(engine):
    engine.submit(request("a"))
    engine.send(Submit(request=request("b")))
    first = collect(engine, "a")
    assert sum(len(output.token_ids) for output in first) == 4
    assert first[-1].finish_reason == "length"


def test_an_abort_arrives_with_the_next_poll(engine):
    engine.poll()
    engine.submit(request("a", 50))
    engine.send(Abort(request_id="a"))
    assert collect(engine, "a")[-1].finish_reason == "abort"


@pytest.mark.parametrize("drain", [True, False])
def test_after_shutdown_it_says_stopped(engine, drain):
    engine.poll()
    engine.submit(request("a"))
    engine.send(Shutdown(drain=drain))
    assert engine.poll() == [Stopped()]


def test_loading_reports_stages_in_order(config):
    seen: list[Progress] = []
    inline.create(config, seen.append).close()
    stages = list(dict.fromkeys(progress.stage for progress in seen))
    assert stages == ["target weights", "warm-up"]
    assert all(0 <= progress.done <= progress.total for progress in seen)
    assert seen[-1].done == seen[-1].total


def test_a_checkpoint_without_weights_is_refused(config, tmp_path):
    broken = msgspec.structs.replace(config, model=msgspec.structs.replace(config.model, path=str(tmp_path)))
    with pytest.raises(CheckpointError, match=str(tmp_path)):
        inline.create(broken, lambda progress: None)


def bound(name, spec, num_tokens=20):
    params = SamplingParams(temperature=0.0, grammar=spec)
    return msgspec.structs.replace(request(name, num_tokens), sampling=params)


def test_polling_waits_for_a_compilation_and_then_goes_on(config):
    engine = inline.create(config, lambda progress: None)
    engine.poll()
    engine.submit(bound("a", GrammarSpec.regex("[0-9]{40}"), 4))
    outputs = []
    while not outputs or outputs[-1].finish_reason is None:
        for message in engine.poll(30.0):
            outputs += message.outputs
    assert outputs[0].is_accepted
    assert sum(len(output.token_ids) for output in outputs) == 4
    engine.submit(bound("b", GrammarSpec.regex("[0-9]{41}"), 4))
    engine.send(Shutdown(drain=True))
    assert engine.poll(30.0) == [Stopped()]


def test_a_checkpoint_without_a_tokenizer_serves_no_constraint_and_everything_else(config, tmp_path):
    folder = make_tiny_llm(tmp_path / "tiny")
    lone = settle(Options(model=str(folder), threads=1, max_model_len=64, max_num_seqs=2))
    (folder / "tokenizer.json").unlink()
    engine = inline.create(lone, lambda progress: None)
    engine.poll()
    engine.submit(bound("a", GrammarSpec.json_object()))
    engine.submit(request("b"))
    assert collect(engine, "b")[-1].finish_reason == "length"
    engine.submit(bound("c", GrammarSpec.json_object()))
    (refusal,) = collect(engine, "c")
    assert (refusal.error_kind, refusal.error_code) == ("UnsupportedFeature", "no_structured_output")
    assert "tokenizer.json is missing" in refusal.error
    engine.close()
