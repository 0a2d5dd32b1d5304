"""A drafter changes no sampled text of the bundled model: the small version of `benchmarks/flip_rate.py`.

A draw within rounding of its neighbour may flip when logits are computed beside other positions. The measured rate is
in `docs/log.md`; a flip in so few tokens points at a fault of positions, noise or masks rather than at rounding.
"""

from __future__ import annotations

import json

import pytest

from slipstream import LLM, SamplingParams
from slipstream.demo import demo_path
from slipstream.frontend.llm import Completion

NUM_PROMPTS = 6
MAX_NEW = 48


def sample(drafter: str, draft_len: int, *, first_seed: int = 0) -> list[Completion]:
    lines = (demo_path().parent / "prompts.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(lines[index * len(lines) // NUM_PROMPTS]) for index in range(NUM_PROMPTS)]
    with LLM("demo", drafter=drafter, draft_len=draft_len, threads=1, max_num_seqs=1) as llm:
        return [
            llm.chat(row["messages"], SamplingParams(temperature=1.0, seed=first_seed + index, max_tokens=MAX_NEW))[0]
            for index, row in enumerate(rows)
        ]


@pytest.fixture(scope="module")
def plain() -> list[Completion]:
    return sample("none", 0)


@pytest.mark.parametrize(("drafter", "draft_len"), [("eagle3", 3), ("ngram", 4), ("eagle3", 7)])
def test_a_drafter_flips_no_sampled_text(plain: list[Completion], drafter: str, draft_len: int) -> None:
    drafted = sample(drafter, draft_len)
    assert sum(one.num_accepted for one in drafted) > 0, "nothing was drafted right: equality would prove little"
    assert [one.token_ids for one in drafted] == [one.token_ids for one in plain]


def test_the_texts_are_sampled(plain: list[Completion]) -> None:
    """The control: other seeds give other texts, so equality above is not greedy decoding in disguise."""
    others = sample("none", 0, first_seed=1000)
    assert [one.token_ids for one in others] != [one.token_ids for one in plain]
