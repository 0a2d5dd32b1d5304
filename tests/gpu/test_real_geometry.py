"""The real model's attention geometry, few narrow layers with random weights: what hides in small models.

Blocks of 128, 16 of them chosen, heads of 128: up to 2,048 visible tokens the choice is everything, so a fault in index
keys, scores or choice cannot show. These tests go past that, with one and four key-value heads, at batch one and more,
from graphs, with chunks, reused prefixes and evicted requests, all at once.
"""

from __future__ import annotations

import random

import pytest
import torch

from slipstream import LLM, SamplingParams
from support.tiny_llm import make_tiny_llm

GEOMETRY = {
    "hidden_size": 512,
    "head_dim": 128,
    "rotary_dim": 64,
    "index_head_dim": 128,
    "index_block_size": 128,
    "topk_blocks": 16,
    "dense_intermediate_size": 512,
    "expert_intermediate_size": 256,
    "shared_intermediate_size": 256,
    "num_experts": 16,
    "topk_experts": 4,
    "max_position_embeddings": 140_000,
}
HEADS = {"one_kv_head": {"num_heads": 16, "num_kv_heads": 1}, "four_kv_heads": {"num_heads": 64, "num_kv_heads": 4}}
LENGTHS = (2600, 130, 2047, 2049, 4100, 5)
GREEDY = SamplingParams(temperature=0.0, max_tokens=20, ignore_eos=True)
COUPLED = SamplingParams(temperature=1.0, seed=5, max_tokens=20, ignore_eos=True)
MEMORY = 6 << 30


@pytest.fixture(scope="module", params=HEADS)
def checkpoint(request, tmp_path_factory):
    return str(make_tiny_llm(tmp_path_factory.mktemp(request.param), **GEOMETRY, **HEADS[request.param]))


def prompts(lengths=LENGTHS, seed=0):
    draws = random.Random(seed)
    return [[draws.randrange(3, 90) for _ in range(length)] for length in lengths]


def run(checkpoint, asked, sampling, **options):
    settings = {"device": "cuda", "dtype": "float32", "max_num_seqs": 4, "max_model_len": 8192, **options}
    settings.setdefault("kv_cache_bytes", MEMORY)
    with LLM(checkpoint, **settings) as llm:
        return [[answer.token_ids for answer in llm.generate(asked, sampling)] for _ in range(2)]


@pytest.fixture(scope="module")
def expected(checkpoint):
    """The CPU's references, one request at a time."""
    sampling = [GREEDY, COUPLED] * 3
    return run(checkpoint, prompts(), sampling, device="cpu", max_num_seqs=1, drafter="none")[0]


WAYS = {
    "batch": {},
    "batch_one": {"max_num_seqs": 1},
    "chunks": {"prefill_chunk_tokens": 300},
    "poisoned": {"poison_freed_pages": True},
    # Room for the longest prompt and little else: requests wait for pages, and pages change hands.
    "evicted": {"max_num_seqs": 6, "max_model_len": 4608, "kv_cache_bytes": None},
}
PAIRS = [("ngram", way) for way in WAYS] + [("none", "batch"), ("none", "evicted")]


@pytest.mark.parametrize(("drafter", "way"), PAIRS)
def test_everything_at_once_past_2048_tokens(checkpoint, expected, drafter, way):
    """The second round finds its prompts in the cache."""
    options = WAYS[way]
    if "kv_cache_bytes" in options:
        options = {**options, "kv_cache_bytes": bytes_of(checkpoint, num_tokens=4700)}
    sampling = [GREEDY, COUPLED] * 3
    for answers in run(checkpoint, prompts(), sampling, drafter=drafter, **options):
        assert answers == expected


def bytes_of(checkpoint, num_tokens):
    """Return a cache size that holds so many tokens and not one page more."""
    with LLM(
        checkpoint, device="cuda", dtype="float32", max_model_len=8192, max_num_seqs=1, kv_cache_bytes=MEMORY
    ) as llm:
        facts = llm.facts
    return MEMORY // facts.num_pages * (num_tokens // facts.page_size + 2)


@pytest.mark.parametrize("checkpoint", ["four_kv_heads"], indirect=True)
def test_a_hundred_thousand_tokens_in_chunks_of_two_sizes(checkpoint):
    """One key-value head goes to 300,000 in test_long_context."""
    asked = prompts((100_000,), seed=7)
    sampling = SamplingParams(temperature=0.0, max_tokens=4, logprobs=5, ignore_eos=True)
    found = []
    for chunk in (2048, 8192):
        options = {"max_model_len": 110_000, "max_num_seqs": 1, "prefill_chunk_tokens": chunk, "kv_cache_bytes": MEMORY}
        with LLM(checkpoint, device="cuda", dtype="bfloat16", **options) as llm:
            found.append(llm.generate(asked, sampling)[0])
    first, second = (torch.tensor([value for _, value in one.top_logprobs[0]]) for one in found)
    assert torch.allclose(first, second, atol=0.05)


def test_ten_thousand_replays_with_poisoned_pages():
    """Lengths, batches and rows change all the time; the first answers are still the last ones."""
    draws = random.Random(3)
    fixed = [[draws.randrange(4000) for _ in range(30)] for _ in range(4)]
    with LLM("demo", device="cuda", drafter="eagle3", max_num_seqs=8, poison_freed_pages=True, dtype="float32") as llm:
        first = [answer.token_ids for answer in llm.generate(fixed, SamplingParams(temperature=0.0, max_tokens=60))]
        num_steps = 0
        while num_steps < 10_000:
            asked = [[draws.randrange(4000) for _ in range(draws.randrange(1, 120))] for _ in range(24)]
            sampling = [
                SamplingParams(
                    temperature=draws.choice([0.0, 1.0]), max_tokens=draws.randrange(1, 200), ignore_eos=True
                )
                for _ in asked
            ]
            answers = llm.generate(asked, sampling)
            assert all(answer.finish_reason == "length" for answer in answers)
            num_steps += max(answer.num_verify_steps for answer in answers) * 3
        again = [answer.token_ids for answer in llm.generate(fixed, SamplingParams(temperature=0.0, max_tokens=60))]
    assert again == first
