"""Contexts to 300,000 tokens on the real attention geometry: chunks of two sizes, reused prefixes, drafters.

Blocks of 128, 16 of them chosen among 2,344; few narrow layers with random weights, one key-value head. Nothing
computes such a prompt as a reference; two ways of computing it must agree, and the kernels are compared with their
references at this length in test_kernels.
"""

from __future__ import annotations

import pytest
import torch

from slipstream import SamplingParams
from support.device_models import RandomTarget
from support.near_ties import own_parting

DEVICE = "cuda"
LENGTH = 300_000
NUM_NEW = 24
GEOMETRY = {
    "hidden_size": 512,
    "num_layers": 3,
    "num_heads": 16,
    "num_kv_heads": 1,
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
    "max_position_embeddings": LENGTH + 4096,
}
MAX_GAP = 2.0
"""Logits between two draws that count as a near tie in bfloat16 with random experts; see test_equal_bf16."""

TAIL_ERROR = 1.0
"""Of the log-probabilities of the likeliest tokens behind the prompt, between chunks of two sizes."""

PARAMS = [
    SamplingParams(temperature=0.0, max_tokens=NUM_NEW, logprobs=5, ignore_eos=True),
    SamplingParams(temperature=0.8, seed=3, max_tokens=NUM_NEW, logprobs=0, ignore_eos=True),
]


def text():
    """A prompt whose last part occurs earlier, so that an n-gram drafter has something to say."""
    draws = torch.Generator().manual_seed(11)
    tokens = torch.randint(3, 300, (LENGTH,), generator=draws)
    tokens[-500:] = tokens[150_000:150_500]
    return tokens.tolist()


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return RandomTarget(tmp_path_factory.mktemp("long"), device=DEVICE, **GEOMETRY)


@pytest.fixture(scope="module")
def answers(target):
    """By name: what two chunk sizes and two drafters answer, and what a second round in the same engine does."""
    found = {}
    for name, chunk, drafter in (("none", 2048, "none"), ("ngram", 8192, "ngram")):
        settings = {"max_num_seqs": 2, "prefill_chunk_tokens": chunk, "drafter": drafter, "kv_cache_bytes": 4 << 30}
        with target.llm(dtype="bfloat16", **settings) as llm:
            first = llm.generate([text()], PARAMS[0])
            both = llm.generate([text(), text()], PARAMS)
            found[name], found[f"{name} again"] = first[0], both[0]
            found[f"{name} coupled"] = both[1]
    return found


def test_chunks_of_two_sizes_give_the_same_log_probabilities(answers):
    """The likeliest tokens behind the prompt, whatever the chunks it was computed in."""
    first, second = (dict(answers[name].top_logprobs[0]) for name in ("none", "ngram"))
    shared = sorted(set(first) & set(second))
    assert len(shared) >= 3
    error = max(abs(first[token] - second[token]) for token in shared)
    print(f"worst of {len(shared)} log-probabilities behind {LENGTH} tokens: {error:.4f}")
    assert error < TAIL_ERROR


@pytest.mark.parametrize(
    ("left", "right"),
    [("none", "none again"), ("ngram", "ngram again"), ("none", "ngram"), ("none coupled", "ngram coupled")],
)
def test_decoding_behind_it_parts_at_near_ties_only(answers, left, right):
    """From a prefix that was computed or found, none and n-gram, greedy and coupled."""
    one, other = ((answers[name].token_ids, answers[name].logprobs) for name in (left, right))
    parting = own_parting(LENGTH, one, other, PARAMS[left.endswith("coupled")])
    print(f"{left} against {right}: {parting}")
    assert parting is None or parting.gap <= MAX_GAP


def test_the_prefix_was_found_and_drafts_were_verified(answers):
    assert answers["none"].num_prefix_hit_tokens == 0
    for name in ("none again", "none coupled", "ngram again", "ngram coupled"):
        assert answers[name].num_prefix_hit_tokens > LENGTH - 256
    assert answers["ngram"].num_draft_tokens > 0
    assert len(answers["ngram"].token_ids) == NUM_NEW
