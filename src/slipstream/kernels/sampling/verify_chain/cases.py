"""Named chains; every implementation must return the listed counts."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from slipstream.kernels.case import EXACT, Case


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainCase(Case):
    """Draws and drafts of a batch, and the counts that follow."""

    draws: tuple[tuple[int, ...], ...]
    drafts: tuple[tuple[int, ...], ...]
    num_accepted: tuple[int, ...]


def make_inputs(case: ChainCase) -> dict[str, Tensor]:
    """Return the keyword arguments of the contract."""
    drafts = torch.tensor(case.drafts, dtype=torch.int64).reshape(len(case.draws), -1)
    return {"draws": torch.tensor(case.draws), "draft_tokens": drafts}


def _case(
    name: str,
    guards: str,
    draws: tuple[tuple[int, ...], ...],
    drafts: tuple[tuple[int, ...], ...],
    num_accepted: tuple[int, ...],
) -> ChainCase:
    return ChainCase(
        name=name,
        guards=guards,
        seed=0,
        dtype=torch.int64,
        tolerance=EXACT,
        draws=draws,
        drafts=drafts,
        num_accepted=num_accepted,
    )


CASES = (
    _case("no_drafts", "K = 0 is plain decoding", ((4,), (0,)), ((), ()), (0, 0)),
    _case("all", "every draft agrees; the last draw is the bonus", ((1, 2, 3, 9),), ((1, 2, 3),), (3,)),
    _case("first_wrong", "later agreements do not count after a mismatch", ((1, 2, 3, 9),), ((7, 2, 3),), (0,)),
    _case("gap", "only the prefix counts", ((1, 2, 3, 9),), ((1, 7, 3),), (1,)),
    _case("shifted", "draft j+1 meets draw j, not draw j+1", ((1, 2, 3, 9),), ((2, 3, 9),), (0,)),
    _case("no_token", "a missing proposal is not token 0", ((0, 0, 5),), ((-1, 0),), (0,)),
    _case("no_draw", "two missing tokens do not agree", ((-1, 0, 5),), ((-1, 0),), (0,)),
    _case(
        "mixed", "requests are independent", ((1, 2, 3), (4, 5, 6), (7, 8, 9)), ((1, 2), (4, 0), (-1, -1)), (2, 1, 0)
    ),
)
