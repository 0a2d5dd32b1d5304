from __future__ import annotations

import torch

from slipstream.kernels.attention.paged_batch import NUM_SPARE_PAGES, fill_pages, make_batch, slots_of
from slipstream.kernels.case import EXACT, Case

SIZES = {"seq_lens": (9, 1, 4), "query_lens": (2, 1, 0), "page_size": 4, "max_pages": 5, "num_padding": 2}
CASE = Case("batch", "", 3, torch.float32, EXACT, SIZES)


def test_tokens_are_the_last_positions_then_padding():
    batch = make_batch(CASE, CASE.generator())
    assert batch.positions.tolist() == [7, 8, 0, -1, -1]
    assert batch.req_of_token.tolist() == [0, 0, 1, 0, 0]


def test_pages_are_owned_once_and_never_page_0():
    batch = make_batch(CASE, CASE.generator())
    owned = [page for row, count in zip(batch.page_table.tolist(), (3, 1, 1), strict=True) for page in row[:count]]
    assert len(set(owned)) == len(owned) == batch.num_pages - 1 - NUM_SPARE_PAGES
    assert min(owned) >= 1
    assert not batch.page_table[0, 3:].any()


def test_slots_without_a_token_hold_nan():
    batch = make_batch(CASE, CASE.generator())
    contents = [torch.full((seq_len, 2), float(req)) for req, seq_len in enumerate(batch.seq_lens)]
    pages = fill_pages(batch, contents)
    assert pages[0].isnan().all()
    assert int((~pages.isnan()).sum()) == 2 * sum(batch.seq_lens)
    for req in range(3):
        assert (pages.flatten(0, 1)[slots_of(batch, req)] == req).all()
