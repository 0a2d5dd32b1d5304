"""Batch entries to rows, padding skipped."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from slipstream.kernels.step.placement import batch_of_row, put_rows


@given(st.permutations(range(5)), st.integers(0, 5), st.lists(st.integers(0, 5), max_size=4))
def test_every_row_finds_its_entry(rows: list[int], count: int, padding_at: list[int]):
    batch = list(rows)[:count]
    for place in padding_at:
        batch.insert(min(place, len(batch)), -1)
    owner = batch_of_row(torch.tensor(batch, dtype=torch.int64), 5)
    assert owner.tolist() == [batch.index(row) if row in batch else -1 for row in range(5)]


def test_only_owned_rows_change():
    state = torch.arange(12).reshape(4, 3)
    values = -torch.ones(2, 3, dtype=torch.int64)
    put_rows(state, values, torch.tensor([-1, 1, -1, 0]))
    assert state[[1, 3]].eq(-1).all()
    assert state[[0, 2]].tolist() == [[0, 1, 2], [6, 7, 8]]
    address = state.data_ptr()
    put_rows(state, values[:0], torch.full((4,), -1))
    assert state.data_ptr() == address
