"""N-gram drafts against a naive search."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.base.errors import ShapeError
from slipstream.kernels.draft.ngram_match.cases import CASES, MatchCase, make_inputs
from slipstream.kernels.draft.ngram_match.contract import ngram_match


def search(tokens: list[int], ngram_max: int, ngram_min: int, draft_len: int) -> list[int]:
    last = len(tokens) - 1
    for length in range(ngram_max, ngram_min - 1, -1):
        if length > last:
            continue
        ending = tokens[last - length + 1 :]
        for end in range(last - 1, length - 2, -1):
            if tokens[end - length + 1 : end + 1] == ending:
                found = tokens[end + 1 : end + 1 + draft_len]
                return found + [-1] * (draft_len - len(found))
    return [-1] * draft_len


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_cases(case: MatchCase):
    given = make_inputs(case)
    for tail in ((), (9, 9, 9, 1, 2, 1, 2), (-1, 10**12)):
        assert ngram_match(**given).tolist() == [list(case.drafts)], "tokens past the last position must not matter"
        given["history"] = torch.tensor([case.history + tail])


@settings(max_examples=150, deadline=None)
@given(
    rows=st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=24), min_size=1, max_size=4),
    ngram=st.tuples(st.integers(1, 4), st.integers(0, 3)),
    draft_len=st.integers(0, 5),
    filler=st.integers(-3, 2),
)
def test_equals_a_naive_search(rows, ngram, draft_len, filler):
    ngram_min, ngram_max = ngram[0], ngram[0] + ngram[1]
    history = torch.full((len(rows), 30), filler)
    for index, row in enumerate(rows):
        history[index, : len(row)] = torch.tensor(row)
    drafts = ngram_match(
        history,
        torch.tensor([len(row) - 1 for row in rows]),
        ngram_max=ngram_max,
        ngram_min=ngram_min,
        draft_len=draft_len,
    )
    assert drafts.tolist() == [search(row, ngram_max, ngram_min, draft_len) for row in rows]


@pytest.mark.parametrize("position", [-1, -40, 6, 1000])
def test_a_position_outside_the_history_proposes_nothing(position: int):
    history = torch.zeros(2, 6, dtype=torch.int64)
    drafts = ngram_match(history, torch.tensor([position, 3]), ngram_max=2, ngram_min=1, draft_len=2)
    assert drafts.tolist() == [[-1, -1], [0, -1]]


def test_wrong_shapes_are_named():
    with pytest.raises(ShapeError, match="last_positions is"):
        ngram_match(torch.zeros(2, 6).long(), torch.zeros(3).long(), ngram_max=1, ngram_min=1, draft_len=1)
