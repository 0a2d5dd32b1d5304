"""The bundled model on a GPU: the same tokens as on the CPU, and under every way of running a step.

Float32, token by token; bfloat16 and its tolerances are in test_equal_bf16, whose head says which test shows what.
"""

from __future__ import annotations

import json
import random
import sys

import pytest
import torch
from triton.runtime.jit import JITFunction

from slipstream import LLM, SamplingParams
from slipstream.demo import demo_path
from slipstream.wire.grammar import GrammarSpec

MAX_TOKENS = 48
SCHEMA = {"type": "object", "properties": {"name": {"enum": ["Ada", "Bo"]}, "age": {"enum": [1, 22, 333]}}}
SCHEMA |= {"required": ["name", "age"], "additionalProperties": False}


def conversations(count=24):
    lines = (demo_path().parent / "prompts.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["messages"] for line in lines[:: max(1, len(lines) // count)]][:count]


def params():
    """Greedy and coupled requests in turn, some with filters: they share batches."""
    coupled = {"temperature": 0.8, "max_tokens": MAX_TOKENS}
    kinds = (
        lambda i: SamplingParams(temperature=0.0, max_tokens=MAX_TOKENS),
        lambda i: SamplingParams(seed=i, **coupled),
        lambda i: SamplingParams(temperature=0.0, max_tokens=MAX_TOKENS),
        lambda i: SamplingParams(seed=i, top_p=0.9, top_k=40, **coupled),
    )
    return [kinds[i % len(kinds)](i) for i in range(len(conversations()))]


def answers(*, device="cuda", dtype="bfloat16", max_num_seqs=8, **options):
    """Return the token ids of every conversation, answered side by side."""
    with LLM("demo", device=device, dtype=dtype, max_num_seqs=max_num_seqs, **options) as llm:
        return [answer.token_ids for answer in llm.chat(conversations(), params())]


@pytest.fixture(scope="module")
def single():
    """The plain engine in float32: no drafter, no graphs, no overlap."""
    return answers(dtype="float32", drafter="none", cuda_graphs="off", overlap="off")


def test_gpu_equals_cpu(single):
    assert answers(device="cpu", dtype="float32", drafter="none") == single


WAYS = {
    "graphs": {"cuda_graphs": "on", "overlap": "off"},
    "graphs_overlap": {"cuda_graphs": "on", "overlap": "on"},
    "overlap": {"cuda_graphs": "off", "overlap": "on"},
    "three_rows": {"cuda_graphs": "on", "overlap": "on", "max_num_seqs": 3},
    "chunks": {"cuda_graphs": "on", "overlap": "on", "prefill_chunk_tokens": 40},
    "no_prefixes": {"cuda_graphs": "on", "overlap": "on", "prefix_cache": False},
    "poisoned": {"cuda_graphs": "on", "overlap": "on", "poison_freed_pages": True},
}
PAIRS = [("eagle3", way) for way in WAYS] + [("ngram", "graphs_overlap"), ("ngram", "chunks"), ("none", "three_rows")]


@pytest.mark.parametrize(("drafter", "way"), PAIRS)
def test_every_way_of_running_gives_the_same_tokens(single, drafter, way):
    assert answers(dtype="float32", drafter=drafter, **WAYS[way]) == single


def test_alone_and_in_a_batch():
    with LLM("demo", device="cuda", dtype="float32", drafter="eagle3", max_num_seqs=24) as llm:
        together = [answer.token_ids for answer in llm.chat(conversations(), params())]
        alone = [llm.chat(one, sampling)[0].token_ids for one, sampling in zip(conversations(), params(), strict=True)]
    assert alone == together


@pytest.mark.parametrize("drafter", ["ngram", "eagle3"])
def test_structured_output_and_edits(drafter):
    """Steps in two parts, and edited logits beside replayed graphs."""
    schema = SamplingParams(temperature=0.0, max_tokens=60, grammar=GrammarSpec.json_schema(SCHEMA))
    edited = SamplingParams(temperature=0.0, max_tokens=30, repetition_penalty=1.3, min_tokens=5, logprobs=3)
    plain = SamplingParams(temperature=0.0, max_tokens=30)
    mixed = [schema, edited, plain] * 4
    found = {}
    for device in ("cpu", "cuda"):
        with LLM("demo", device=device, dtype="float32", drafter=drafter, max_num_seqs=8) as llm:
            found[device] = llm.chat(conversations(12), mixed)
    for on_cpu, on_gpu, sampling in zip(found["cpu"], found["cuda"], mixed, strict=True):
        assert on_gpu.token_ids == on_cpu.token_ids
        if sampling is schema:
            assert set(json.loads(on_gpu.text)) == {"name", "age"}
        if sampling is edited:
            assert torch.allclose(torch.tensor(on_gpu.logprobs), torch.tensor(on_cpu.logprobs), atol=1e-3)


@pytest.mark.parametrize("drafter", ["none", "eagle3"])
def test_two_graphs_equal_no_graphs(drafter):
    """Edits, log-probabilities and constraints beside plain rows, in bfloat16, bit for bit where shapes are equal."""
    schema = SamplingParams(temperature=0.0, max_tokens=40, grammar=GrammarSpec.json_schema(SCHEMA))
    edited = SamplingParams(temperature=0.0, max_tokens=40, repetition_penalty=1.2, logit_bias={11: -5.0}, logprobs=0)
    sampled = SamplingParams(temperature=0.9, seed=4, max_tokens=40, min_tokens=6, bad_words=("the sea",), top_p=0.9)
    mixed = [schema, edited, sampled, SamplingParams(temperature=0.0, max_tokens=40)] * 2
    found = []
    for graphs in ("off", "on"):
        with LLM("demo", device="cuda", drafter=drafter, max_num_seqs=8, cuda_graphs=graphs) as llm:
            found.append(llm.chat(conversations(8), mixed))
    for without, with_graphs in zip(*found, strict=True):
        assert with_graphs.token_ids == without.token_ids
        assert torch.allclose(torch.tensor(with_graphs.logprobs), torch.tensor(without.logprobs), atol=0.05)


@pytest.mark.parametrize("drafter", ["eagle3"])
def test_alternatives_are_the_same_with_and_without_graphs(drafter):
    """Several numbers of alternatives in one batch, beside rows that want none, with accepted runs of every length."""
    wanted = [5, 5, None, 20, 1, 0, 5, None]
    params = [
        SamplingParams(max_tokens=30, ignore_eos=True, logprobs=count, temperature=(0.0, 0.8)[place % 2], seed=place)
        for place, count in enumerate(wanted)
    ]
    found = []
    for graphs in ("off", "on"):
        with LLM("demo", device="cuda", dtype="float32", drafter=drafter, max_num_seqs=8, cuda_graphs=graphs) as llm:
            found.append(llm.chat(conversations(8), params))
    for count, without, with_graphs in zip(wanted, *found, strict=True):
        assert with_graphs.token_ids == without.token_ids
        assert [len(ones) for ones in with_graphs.top_logprobs] == [count] * (30 if count else 0)
        for one, other in zip(with_graphs.top_logprobs, without.top_logprobs, strict=True):
            values, wanted_values = ([value for _, value in ones] for ones in (one, other))
            assert values == pytest.approx(wanted_values, abs=1e-3)
            # The same tokens, but where two of them are as good as equal.
            for token, value in one:
                assert dict(other).get(token, wanted_values[-1]) == pytest.approx(value, abs=1e-3)
        chosen, wanted_chosen = with_graphs.logprobs, without.logprobs
        assert chosen == pytest.approx(wanted_chosen, abs=1e-3)


def test_rejection_runs_and_ends():
    """Its text depends on the drafter by design; what can be compared here is that every request ends as it should."""
    sampling = [SamplingParams(temperature=1.0, max_tokens=32) for _ in conversations()]
    with LLM("demo", device="cuda", drafter="eagle3", max_num_seqs=8) as llm:
        found = llm.chat(conversations(), sampling)
    assert {answer.finish_reason for answer in found} <= {"stop", "length"}
    assert sum(answer.num_accepted for answer in found) > 0


def compiled_variants():
    """Return how many variants of the project's kernels are compiled in this process."""
    kernels = {}
    for name, module in list(sys.modules.items()):
        if name.startswith("slipstream.kernels"):
            kernels |= {id(value): value for value in vars(module).values() if isinstance(value, JITFunction)}
    return sum(len(caches[0]) for kernel in kernels.values() for caches in kernel.device_caches.values())


@pytest.mark.parametrize("drafter", ["ngram"])
def test_nothing_is_compiled_after_ready(drafter):
    """With the counter of variants itself; test_server asks the same of EAGLE-3 with requests of every kind."""
    draws = random.Random(1)
    with LLM("demo", device="cuda", drafter=drafter, max_num_seqs=16, late_compile="error") as llm:
        before = compiled_variants()
        for _ in range(6):
            prompts = [
                [draws.randrange(4000) for _ in range(draws.choice([1, 3, 16, 40, 200, 700]))] for _ in range(40)
            ]
            kinds = [
                SamplingParams(temperature=0.0, max_tokens=draws.randrange(1, 30)),
                SamplingParams(temperature=1.0, max_tokens=9, top_k=5),
                SamplingParams(temperature=0.7, seed=3, max_tokens=8),
                SamplingParams(temperature=1.0, max_tokens=9),
            ]
            llm.generate(prompts, [draws.choice(kinds) for _ in prompts])
        assert before > 20
        assert compiled_variants() == before
