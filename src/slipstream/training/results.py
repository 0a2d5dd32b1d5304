"""What came out of a run: a TOML file with provenance, and a table for a reader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from slipstream.harness import provenance
from slipstream.harness.report import build_result, format_rows, write_result
from slipstream.training.checkpoints import LogRow
from slipstream.training.measure import DrafterScore
from slipstream.training.settings import TrainSettings


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a run has to tell.

    Args:
        device: its name.
        text_hashes: SHA-256 of each file of texts.
        seconds: of stepping, over all legs of the run.
        last: the last line of the log.
        is_held_out: whether the prompts that acceptance was measured on were not trained on.
        scores: the trained drafter first, then the controls; the last one is without a drafter.
    """

    kind: str
    settings: TrainSettings
    identity: dict[str, Any]
    device: str
    num_threads: int
    num_texts: int
    num_written_tokens: int
    num_skipped_prompts: int
    text_hashes: dict[str, str]
    peak_rate: float
    steps: int
    tokens: int
    seconds: float
    last: LogRow
    is_held_out: bool
    draft_len: int
    scores: tuple[DrafterScore, ...]

    @property
    def num_equal_answers(self) -> int:
        """Return how many answers are the same with the trained drafter and without any."""
        with_drafter, without = self.scores[0].answers, self.scores[-1].answers
        return sum(one == other for one, other in zip(with_drafter, without, strict=True))


def write_outcome(path: Path, outcome: Outcome) -> None:
    """Write an outcome as TOML."""
    measured = {
        score.drafter: [msgspec.structs.asdict(domain) for domain in score.domains]
        for score in outcome.scores
        if score.whole.acceptance_length is not None
    }
    result = build_result(
        "train-drafter",
        provenance.collect(outcome.num_threads),
        device=outcome.device,
        drafter=outcome.kind,
        settings=msgspec.structs.asdict(outcome.settings) | {"budget": msgspec.structs.asdict(outcome.settings.budget)},
        inputs={name: value for name, value in outcome.identity.items() if not name.startswith("settings.")},
        texts={
            "num_texts": outcome.num_texts,
            "num_written_tokens": outcome.num_written_tokens,
            "num_skipped_prompts": outcome.num_skipped_prompts,
            "sha256": outcome.text_hashes,
        },
        training={
            "steps": outcome.steps,
            "tokens": outcome.tokens,
            "seconds": outcome.seconds,
            "peak_rate": outcome.peak_rate,
            "last_loss": outcome.last.loss,
        },
        measurement={
            "draft_len": outcome.draft_len,
            "is_held_out": outcome.is_held_out,
            "num_answers": len(outcome.scores[-1].answers),
            "num_equal_answers": outcome.num_equal_answers,
        },
        acceptance=measured,
    )
    write_result(path, result)


def format_outcome(outcome: Outcome) -> str:
    """Return acceptance by domain and drafter as a table, and what else a reader wants to know."""
    measured = [score for score in outcome.scores if score.whole.acceptance_length is not None]
    head = ("domain", "prompts", *(f"{score.drafter}, tokens per step" for score in measured), "by position")
    rows = []
    for place, first in enumerate(outcome.scores[0].domains):
        lengths = [score.domains[place].acceptance_length for score in measured]
        rates = " ".join(f"{rate:.2f}" for rate in first.acceptance_rates)
        rows.append((first.domain, first.num_prompts, *lengths, rates or None))
    kind = "held-out prompts" if outcome.is_held_out else "prompts of training, some or all"
    notes = [
        f"acceptance on {kind}, greedy, {outcome.draft_len} drafts per step",
        f"{outcome.num_equal_answers} of {len(outcome.scores[-1].answers)} answers are the same without a drafter",
        f"{outcome.steps} steps, {outcome.tokens} tokens, {outcome.seconds:.0f} s of training on {outcome.device}",
    ]
    return "\n".join([format_rows(head, rows), "", *notes])
