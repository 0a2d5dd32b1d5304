"""Batches and pages for the cases of paged operations: shuffled pages, NaN wherever nothing was written."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from slipstream.kernels.case import Case

NUM_SPARE_PAGES = 2
"""Pages that nobody owns, besides the null page: they stay NaN."""


@dataclass(frozen=True, slots=True)
class PagedBatch:
    """Addressing of a batch whose requests own shuffled, disjoint pages."""

    page_table: Tensor  # [num_reqs, max_pages] int32; 0 past the pages that a request owns
    req_of_token: Tensor  # [num_tokens] int64
    positions: Tensor  # [num_tokens] int64; the last query_len positions of each request, then padding
    seq_lens: tuple[int, ...]
    page_size: int
    num_pages: int


def make_batch(case: Case, generator: torch.Generator) -> PagedBatch:
    """Return the batch of a case.

    Args:
        case: sizes `seq_lens` and `query_lens` (one per request), `page_size`, `max_pages`, `num_padding` (tokens at
            position -1, appended).
        generator: draws the physical pages.
    """
    seq_lens, query_lens = case.sequence("seq_lens"), case.sequence("query_lens")
    page_size, num_padding = case.size("page_size"), case.size("num_padding")
    owned = [-(-seq_len // page_size) for seq_len in seq_lens]
    num_pages = 1 + sum(owned) + NUM_SPARE_PAGES
    shuffled = 1 + torch.randperm(num_pages - 1, generator=generator, dtype=torch.int32)
    page_table = torch.zeros(len(seq_lens), case.size("max_pages"), dtype=torch.int32)
    reqs: list[int] = []
    positions: list[int] = []
    taken = 0
    for req, (seq_len, query_len, count) in enumerate(zip(seq_lens, query_lens, owned, strict=True)):
        page_table[req, :count] = shuffled[taken : taken + count]
        taken += count
        reqs += [req] * query_len
        positions += range(seq_len - query_len, seq_len)
    reqs += [0] * num_padding
    positions += [-1] * num_padding
    tokens = (torch.tensor(reqs, dtype=torch.int64), torch.tensor(positions, dtype=torch.int64))
    return PagedBatch(page_table, *tokens, seq_lens, page_size, num_pages)


def slots_of(batch: PagedBatch, req: int) -> Tensor:
    """Return [seq_len] int64 slots of every token of a request."""
    positions = torch.arange(batch.seq_lens[req])
    pages = batch.page_table[req].long()[positions // batch.page_size]
    return pages * batch.page_size + positions % batch.page_size


def fill_pages(batch: PagedBatch, contents: list[Tensor]) -> Tensor:
    """Return pages that hold each request's tokens, and NaN in every slot that no token has.

    Args:
        batch: whose tokens.
        contents: per request [seq_len, ...].

    Returns:
        [num_pages, page_size, ...] of the contents' dtype.
    """
    inner = contents[0].shape[1:]
    slots = torch.full((batch.num_pages * batch.page_size, *inner), float("nan"), dtype=contents[0].dtype)
    for req, content in enumerate(contents):
        slots[slots_of(batch, req)] = content
    return slots.view(batch.num_pages, batch.page_size, *inner)
