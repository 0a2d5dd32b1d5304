"""Measure acceptance of the EAGLE-3 head without an engine: greedy, chain of K drafts.

The target writes its greedy answer; then the head's drafts from every position are compared with that answer and
the verify steps are walked. Drafts count as accepted up to the end of the answer, not past it. The acceptance length
is the tokens that verify steps emitted / verify steps; an answer's first token comes from its prompt's own pass.

    python simulate_acceptance.py PROMPTS.jsonl CHECKPOINT_FOLDER DRAFTER_FOLDER
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from chat_format import render
from checkpoint import load_draft, load_target
from decoding import read, write
from draft_network import DraftNetwork
from network import Network
from tokenizer import load_tokenizer, special_ids
from torch import Tensor


@dataclass
class Tally:
    """Counts over verify steps."""

    num_steps: int = 0
    num_accepted: int = 0
    num_emitted: int = 0
    num_prompts: int = 0

    @property
    def acceptance_length(self) -> float:
        """Mean tokens emitted per verify step; a run that the answer's end cuts emits less than accepted + 1."""
        return self.num_emitted / max(self.num_steps, 1)

    def add(self, other: Tally) -> None:
        """Add the counts of another tally."""
        self.num_steps += other.num_steps
        self.num_accepted += other.num_accepted
        self.num_emitted += other.num_emitted
        self.num_prompts += other.num_prompts


@torch.no_grad()
def propose(network: Network, draft: DraftNetwork, tokens: Tensor, num_drafts: int, dtype: torch.dtype) -> Tensor:
    """Return the drafts that would follow every position.

    Args:
        network: target.
        draft: head.
        tokens: [batch, length] token ids from position 0.
        num_drafts: K.
        dtype: of the activations.

    Returns:
        [batch, length - 1, K] target ids; entry p holds the drafts for positions p + 2 .. p + 1 + K, made when the
        token at p + 1 is the last emitted one.
    """
    _, taps = read(network, tokens, draft.shape.taps, dtype)
    kept = draft.kept_ids()
    drafts: list[Tensor] = []

    def token_of_step(step: int, state: Tensor | None) -> Tensor:
        if state is None:
            return tokens[:, 1:]
        drafts.append(kept[draft.lm_head(state).argmax(-1)])
        return drafts[-1]

    last = None
    for state in draft.unroll(network.embed, [tap[:, :-1] for tap in taps], num_drafts, token_of_step):
        last = state
    assert last is not None
    drafts.append(kept[draft.lm_head(last).argmax(-1)])
    return torch.stack(drafts, dim=-1)


def walk(prompt_length: int, text: list[int], drafts: list[list[int]]) -> Tally:
    """Count verify steps over one answer.

    Args:
        prompt_length: tokens before the answer.
        text: the answer; its first token comes from the prompt's own forward pass.
        drafts: entry p as in `propose`, for prompt and answer together.
    """
    tally = Tally(num_prompts=1)
    emitted = 1
    while emitted < len(text):
        guesses = drafts[prompt_length + emitted - 2]
        accepted = 0
        while (
            accepted < len(guesses) and emitted + accepted < len(text) and guesses[accepted] == text[emitted + accepted]
        ):
            accepted += 1
        tally.num_steps += 1
        tally.num_accepted += accepted
        emitted += accepted + 1
    tally.num_emitted = max(len(text) - 1, 0)
    return tally


def simulate(
    network: Network,
    draft: DraftNetwork,
    prompts: list[list[int]],
    eos: int,
    num_drafts: int = 3,
    max_new: int = 96,
    dtype: torch.dtype = torch.float32,
    batch: int = 1,
) -> tuple[list[Tally], list[list[int]]]:
    """Return the counts and the greedy answer of every prompt; `batch` prompts are answered at a time."""
    tallies, texts = [], []
    for start in range(0, len(prompts), batch):
        texts += write(network, prompts[start : start + batch], max_new, eos, dtype=dtype)
    for prompt, text in zip(prompts, texts, strict=True):
        tokens = torch.tensor([prompt + text], device=network.embed.device)
        drafts = propose(network, draft, tokens, num_drafts, dtype)[0].tolist()
        tallies.append(walk(len(prompt), text, drafts))
    return tallies, texts


def by_domain(rows: list[dict[str, Any]], tallies: list[Tally]) -> dict[str, Tally]:
    """Sum the counts of each domain, and of all."""
    sums: dict[str, Tally] = defaultdict(Tally)
    for row, tally in zip(rows, tallies, strict=True):
        sums[row["domain"]].add(tally)
        sums["all"].add(tally)
    return dict(sums)


def read_prompts(path: Path) -> list[dict[str, Any]]:
    """Read a prompts file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def prompt_ids(tokenizer: Any, rows: list[dict[str, Any]]) -> list[list[int]]:
    """Return the token ids of every prompt."""
    texts = [render(row["messages"], row.get("tools"), row["thinking_mode"]) for row in rows]
    return [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]


def report(sums: dict[str, Tally]) -> str:
    """Print one line per domain."""
    lines = [f"{'domain':16} {'prompts':>7} {'steps':>7} {'accepted':>9} {'emitted':>8} {'acceptance length':>18}"]
    for domain, tally in sums.items():
        lines.append(
            f"{domain:16} {tally.num_prompts:7} {tally.num_steps:7} {tally.num_accepted:9} "
            f"{tally.num_emitted:8} {tally.acceptance_length:18.3f}"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prompts", type=Path)
    parser.add_argument("checkpoint_folder", type=Path)
    parser.add_argument("drafter_folder", type=Path)
    parser.add_argument("--num-drafts", type=int, default=3)
    parser.add_argument("--max-new", type=int, default=96)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--threads", type=int, default=1, help="more are slower at this size")
    parser.add_argument("--json", type=Path, help="write counts and token ids of every prompt here")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    network = load_target(options.checkpoint_folder)
    draft = load_draft(options.drafter_folder, network)
    tokenizer = load_tokenizer(options.checkpoint_folder)
    rows = read_prompts(options.prompts)
    prompts = prompt_ids(tokenizer, rows)
    eos = special_ids(tokenizer)["eos"]
    dtype = getattr(torch, options.dtype)
    tallies, texts = simulate(network, draft, prompts, eos, options.num_drafts, options.max_new, dtype)
    print(report(by_domain(rows, tallies)))
    if options.json:
        values = [
            {"domain": row["domain"], "prompt": prompt, "answer": text, **vars(tally)}
            for row, prompt, text, tally in zip(rows, prompts, texts, tallies, strict=True)
        ]
        options.json.write_text(json.dumps(values))


if __name__ == "__main__":
    main()
