"""Named histories; every implementation must return the listed drafts."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from slipstream.kernels.case import EXACT, Case


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchCase(Case):
    """One history whose last token is its last position, and the drafts that follow; sizes are the settings."""

    history: tuple[int, ...]
    drafts: tuple[int, ...]


def make_inputs(case: MatchCase) -> dict[str, Tensor | int]:
    """Return the keyword arguments of the contract; tokens past the last position repeat it, to tempt a reader."""
    tail = (case.history[-1],) * 3
    return {
        "history": torch.tensor([case.history + tail]),
        "last_positions": torch.tensor([len(case.history) - 1]),
        "ngram_max": case.size("ngram_max"),
        "ngram_min": case.size("ngram_min"),
        "draft_len": len(case.drafts),
    }


def _case(
    name: str, guards: str, history: tuple[int, ...], ngram: tuple[int, int], drafts: tuple[int, ...]
) -> MatchCase:
    return MatchCase(
        name=name,
        guards=guards,
        seed=0,
        dtype=torch.int64,
        tolerance=EXACT,
        sizes={"ngram_max": ngram[0], "ngram_min": ngram[1]},
        history=history,
        drafts=drafts,
    )


CASES = (
    _case("none", "no earlier occurrence", (1, 2, 3, 4), (3, 1), (-1, -1)),
    _case("one_token", "a single token has nothing before it", (7,), (3, 1), (-1, -1)),
    _case("simple", "the tokens after the occurrence", (1, 2, 3, 9, 1, 2), (3, 2), (3, 9, 1)),
    _case("cut_at_end", "no token past the last position is proposed", (1, 2, 3, 1, 2), (2, 2), (3, 1, 2, -1)),
    _case("longest_wins", "three tokens beat a more recent one", (5, 1, 2, 8, 6, 2, 9, 5, 1, 2), (3, 1), (8,)),
    _case("most_recent", "of equal lengths the last occurrence", (1, 2, 8, 1, 2, 9, 1, 2), (2, 2), (9,)),
    _case("capped", "a match beyond ngram_max is no longer", (4, 1, 2, 8, 0, 1, 2, 9, 4, 1, 2), (2, 2), (9,)),
    _case("too_short", "a match below ngram_min does not count", (2, 8, 1, 2), (3, 2), (-1, -1)),
    _case("overlap", "an occurrence may overlap the ending", (3, 3, 3, 3), (2, 1), (3, -1, -1)),
    _case("no_wrap", "the first token has no token before it", (2, 5, 9, 1, 2), (2, 2), (-1,)),
    _case("no_drafts", "K = 0", (1, 2, 1, 2), (2, 1), ()),
)
