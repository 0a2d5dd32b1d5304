"""Count the sampled texts of the bundled model that change when a drafter is added: the flip rate.

    .venv/bin/python benchmarks/flip_rate.py [--max-tokens N] [--num-prompts N]

Coupled verification makes a text a function of the seed alone as long as the logits of a position do not depend on how
many positions are computed beside it. Rounding does depend on that, so a draw that lies within it of its neighbour may
flip. One request at a time, temperature 1, float32, one thread; prompt i has seed i.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from slipstream import LLM, SamplingParams
from slipstream.demo import demo_path

DRAFTERS: tuple[tuple[str, int], ...] = (("eagle3", 3), ("ngram", 4), ("eagle3", 7))


def read_conversations(num_prompts: int) -> list[dict[str, Any]]:
    """Return prompts of the bundled set, evenly spread over its domains."""
    lines = (demo_path().parent / "prompts.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(lines[index * len(lines) // num_prompts]) for index in range(num_prompts)]


def sample(
    rows: Sequence[dict[str, Any]], drafter: str, draft_len: int, max_tokens: int
) -> list[tuple[tuple[int, ...], int]]:
    """Return (token ids, accepted drafts) of every prompt's sampled answer."""
    answers: list[tuple[tuple[int, ...], int]] = []
    with LLM("demo", drafter=drafter, draft_len=draft_len, threads=1, max_num_seqs=1) as llm:
        for seed, row in enumerate(rows):
            params = SamplingParams(temperature=1.0, seed=seed, max_tokens=max_tokens)
            made = llm.chat(row["messages"], params)[0]
            answers.append((made.token_ids, made.num_accepted))
    return answers


def count_flips(num_prompts: int, max_tokens: int) -> list[tuple[str, int, int]]:
    """Return (drafter, differing texts, accepted drafts) of each of `DRAFTERS` against no drafter."""
    rows = read_conversations(num_prompts)
    base = [token_ids for token_ids, _ in sample(rows, "none", 0, max_tokens)]
    counts: list[tuple[str, int, int]] = []
    for drafter, draft_len in DRAFTERS:
        made = sample(rows, drafter, draft_len, max_tokens)
        flips = sum(token_ids != plain for (token_ids, _), plain in zip(made, base, strict=True))
        counts.append((f"{drafter}, {draft_len} drafts", flips, sum(accepted for _, accepted in made)))
    return counts


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-prompts", type=int, default=40)
    parser.add_argument("--max-tokens", type=int, default=96)
    options = parser.parse_args()
    for name, flips, accepted in count_flips(options.num_prompts, options.max_tokens):
        sys.stdout.write(f"{name}: {flips} of {options.num_prompts} texts differ, {accepted} drafts accepted\n")


if __name__ == "__main__":
    main()
