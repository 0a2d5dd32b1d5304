"""Named batches of drafts; every implementation must write the reference's state on all of them."""

from __future__ import annotations

import torch
from torch import Tensor

from slipstream.kernels.case import EXACT, Case


def make_inputs(case: Case) -> dict[str, Tensor]:
    """Return the keyword arguments of the contract; `draft_tokens` is the state, to be changed in place."""
    rows, draft_len = case.sequence("rows"), case.size("draft_len")
    generator = case.generator()
    return {
        "row_of_batch": torch.tensor(rows),
        "drafts": torch.randint(100, 200, (len(rows), draft_len), generator=generator),
        "draft_tokens": torch.randint(0, 50, (case.size("max_rows"), draft_len), generator=generator),
    }


def _case(name: str, guards: str, rows: tuple[int, ...], draft_len: int, max_rows: int) -> Case:
    sizes = {"rows": rows, "draft_len": draft_len, "max_rows": max_rows}
    return Case(name, guards, len(name), torch.int64, EXACT, sizes)


CASES = (
    _case("one", "only the named row changes", (1,), 3, 3),
    _case("padded", "padding must not reach the last row", (2, -1, 0, -1), 2, 3),
    _case("no_drafts", "K = 0 stores nothing", (0, 1), 0, 2),
    _case("all_padding", "an empty step changes nothing", (-1,), 4, 2),
)
