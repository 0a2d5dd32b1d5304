"""Named placements; every implementation must return the reference's rows on all of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from slipstream.kernels.case import EXACT, Case


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceCase(Case):
    """First positions, live counts and limits of a batch; sizes query_len, page_size and max_pages.

    `num_pages_held` are a request's leading page-table entries that are not the null page.
    """

    first_positions: tuple[int, ...]
    num_live: tuple[int, ...]
    max_seq_lens: tuple[int, ...]
    num_pages_held: tuple[int, ...]


def make_inputs(case: PlaceCase) -> dict[str, Tensor | int]:
    """Return the keyword arguments of the contract."""
    num_reqs = len(case.first_positions)
    query_len, max_pages = case.size("query_len"), case.size("max_pages")
    pages = 1 + torch.randperm(num_reqs * max_pages, generator=case.generator()).reshape(num_reqs, max_pages)
    is_held = torch.arange(max_pages)[None, :] < torch.tensor(case.num_pages_held)[:, None]
    return {
        "token_ids": torch.arange(num_reqs * query_len).reshape(num_reqs, query_len) + 50,
        "first_positions": torch.tensor(case.first_positions),
        "num_live": torch.tensor(case.num_live),
        "max_seq_lens": torch.tensor(case.max_seq_lens),
        "page_table": torch.where(is_held, pages, 0).int(),
        "page_size": case.size("page_size"),
    }


def place_case(
    name: str,
    guards: str,
    first_positions: tuple[int, ...],
    num_live: tuple[int, ...],
    max_seq_lens: tuple[int, ...],
    num_pages_held: tuple[int, ...],
    query_len: int,
) -> PlaceCase:
    """Return a case over pages of four tokens, four to a request."""
    return PlaceCase(
        name=name,
        guards=guards,
        seed=len(name),
        dtype=torch.int64,
        tolerance=EXACT,
        sizes={"query_len": query_len, "page_size": 4, "max_pages": 4},
        first_positions=first_positions,
        num_live=num_live,
        max_seq_lens=max_seq_lens,
        num_pages_held=num_pages_held,
    )


CASES = (
    place_case("one", "the first token that has a row: position 1", (1,), (1,), (64,), (1,), 1),
    place_case("stale", "rows after a rejection are not live", (5, 9), (2, 4), (64, 64), (4, 4), 4),
    place_case("crossing", "K = 9 over pages of four tokens", (3,), (10,), (64,), (4,), 10),
    place_case("last_slot", "the last slot of the last page", (15,), (1,), (16,), (4,), 1),
    place_case("limit", "nothing at or past the request's limit", (6,), (4,), (8,), (4,), 4),
    place_case("table_end", "a position past the table must not index it", (14,), (4,), (64,), (4,), 4),
    place_case("null_page", "a page that was never given is not page 0", (7,), (3,), (64,), (2,), 3),
    place_case("padding", "padding entries between real ones", (0, 5, -7), (0, 2, 0), (0, 64, 0), (0, 2, 0), 3),
)
