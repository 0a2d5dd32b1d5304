"""Named commits; every implementation must write the reference's state on all of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from slipstream.kernels.case import EXACT, Case


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitCase(Case):
    """Rows, base positions and accepted counts of a batch; sizes query_len, max_rows and max_model_len."""

    rows: tuple[int, ...]
    base_positions: tuple[int, ...]
    num_accepted: tuple[int, ...]


def make_inputs(case: CommitCase) -> dict[str, Tensor]:
    """Return the keyword arguments of the contract; the last three are the state, to be changed in place."""
    generator = case.generator()
    max_rows = case.size("max_rows")

    def draw(low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high, shape, generator=generator)

    return {
        "row_of_batch": torch.tensor(case.rows),
        "base_positions": torch.tensor(case.base_positions),
        "num_accepted": torch.tensor(case.num_accepted),
        "emitted": draw(100, 200, len(case.rows), case.size("query_len")),
        "num_computed_tokens": draw(0, 5, max_rows),
        "last_token": draw(0, 50, max_rows),
        "token_history": draw(0, 50, max_rows, case.size("max_model_len")),
    }


def _case(
    name: str,
    guards: str,
    rows: tuple[int, ...],
    base_positions: tuple[int, ...],
    num_accepted: tuple[int, ...],
    **sizes: int,
) -> CommitCase:
    return CommitCase(
        name=name,
        guards=guards,
        seed=len(name),
        dtype=torch.int64,
        tolerance=EXACT,
        sizes=sizes,
        rows=rows,
        base_positions=base_positions,
        num_accepted=num_accepted,
    )


CASES = (
    _case("plain", "K = 0 writes one token", (0,), (3,), (0,), query_len=1, max_rows=2, max_model_len=8),
    _case(
        "none_to_all",
        "every accepted count, rows out of order",
        (2, 0, 1),
        (1, 4, 0),
        (0, 3, 1),
        query_len=4,
        max_rows=3,
        max_model_len=16,
    ),
    _case(
        "padding",
        "padding must reach neither the first nor the last row",
        (-1, 1, -1),
        (-1, 2, -1),
        (0, 2, 3),
        query_len=4,
        max_rows=3,
        max_model_len=12,
    ),
    _case(
        "last_row", "the last row under padding", (3, -1), (5, -1), (1, 0), query_len=3, max_rows=4, max_model_len=16
    ),
    _case(
        "at_the_end",
        "tokens at or past the maximum length are dropped",
        (0, 1),
        (6, 5),
        (3, 0),
        query_len=4,
        max_rows=2,
        max_model_len=8,
    ),
    _case("all_padding", "an empty step", (-1, -1), (-1, -1), (0, 0), query_len=2, max_rows=2, max_model_len=6),
)
