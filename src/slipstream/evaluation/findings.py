"""What a run found, as plain values; None and empty lists are what was not measured. Not here: judging it (verdict)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import msgspec

from slipstream.evaluation.estimates import Ratio, Share

TRAINED = "trained"
"""The drafter of a run, beside its controls."""
ALL = "all"
"""Stands for all domains together."""
Selection = Literal["learned", "full", "random", "local"]


class DomainBits(msgspec.Struct, frozen=True, kw_only=True):
    """How well the texts of one domain are predicted.

    Args:
        bits_per_byte: of the model.
        ngram_bits_per_byte: of the better n-gram model.
        token_ngram, byte_ngram: bits per byte of each; None if it was not trained.
        num_bytes, num_tokens: scored, the first token of each text left out; control tokens have no bytes.
    """

    domain: str
    num_texts: int
    num_tokens: int
    num_bytes: int
    bits_per_byte: Ratio
    ngram_bits_per_byte: Ratio | None = None
    token_ngram: float | None = None
    byte_ngram: float | None = None


class ProblemCell(msgspec.Struct, frozen=True, kw_only=True):
    """Word problems of one number of steps, in forms that training saw or did not see."""

    num_steps: int
    templates: str
    right: Share


class NeedleCell(msgspec.Struct, frozen=True, kw_only=True):
    """Facts found at one depth of texts of one length under one selection of blocks; chance is a lucky guess."""

    selection: Selection
    num_tokens: int
    depth: float
    found: Share
    chance: float


class Acceptance(msgspec.Struct, frozen=True, kw_only=True):
    """Drafts of one domain.

    Args:
        drafter: `trained`, or the name of a control.
        acceptance_length: mean tokens per verify step, its error from how prompts differ.
        positions: per draft position, the share of verify steps that accepted it.
    """

    drafter: str
    domain: str
    temperature: float
    num_prompts: int
    num_verify_steps: int
    acceptance_length: Ratio
    positions: tuple[Share, ...]


class Lossless(msgspec.Struct, frozen=True, kw_only=True):
    """Greedy answers with and without the drafter.

    Args:
        num_identical: prompts whose answers are token for token the same.
        num_near_ties: answers that part where the two best tokens are closer than arithmetic resolves.
        num_different: answers that part for no such reason.
        first_different: the text before the first difference, for a report of the fault.
    """

    num_prompts: int
    num_identical: int
    num_near_ties: int
    num_different: int
    first_different: str | None = None

    @property
    def is_lossless(self) -> bool:
        """Whether no answer was changed by the drafter."""
        return self.num_different == 0


class AblationResult(msgspec.Struct, frozen=True, kw_only=True):
    """One feature switched off.

    Args:
        change: bits per byte with it off, minus with it on, over the same texts.
        largest_shift: largest change of any token's log-probability, in nats; 0 means that nothing changed at all.
        worst_domain, worst_change: where it costs most.
    """

    feature: str
    means: str
    bits_per_byte: float
    change: Ratio
    largest_shift: float
    worst_domain: str
    worst_change: float


@dataclass
class Findings:
    """Collects results while a run goes on; a run that is cut off keeps what it has.

    Args:
        is_partial: the run did not come to its end.
        unfinished: measurements that did not come to theirs.
        notes: what was left out, and why.
    """

    is_partial: bool = False
    unfinished: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    bits: list[DomainBits] = field(default_factory=list)
    problems: list[ProblemCell] = field(default_factory=list)
    needle: list[NeedleCell] = field(default_factory=list)
    acceptance: list[Acceptance] = field(default_factory=list)
    lossless: list[Lossless] = field(default_factory=list)
    ablations: list[AblationResult] = field(default_factory=list)

    def add(self, row: object) -> None:
        """Put a result where it belongs."""
        lists = {
            DomainBits: self.bits,
            ProblemCell: self.problems,
            NeedleCell: self.needle,
            Acceptance: self.acceptance,
            Lossless: self.lossless,
            AblationResult: self.ablations,
        }
        lists[type(row)].append(row)  # type: ignore[index, arg-type]
