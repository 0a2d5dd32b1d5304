"""Chain verification against a scalar loop."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from slipstream.base.errors import ShapeError
from slipstream.kernels.sampling.verify_chain.cases import CASES, ChainCase, make_inputs
from slipstream.kernels.sampling.verify_chain.contract import verify_chain


def count(draws: list[int], drafts: list[int]) -> int:
    for index, draft in enumerate(drafts):
        if draft < 0 or draft != draws[index]:
            return index
    return len(drafts)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_cases(case: ChainCase):
    assert verify_chain(**make_inputs(case)).tolist() == list(case.num_accepted)


@given(
    st.integers(0, 6).flatmap(
        lambda length: st.lists(
            st.tuples(
                st.lists(st.integers(0, 2), min_size=length + 1, max_size=length + 1),
                st.lists(st.integers(-1, 2), min_size=length, max_size=length),
            ),
            min_size=1,
            max_size=5,
        )
    )
)
def test_equals_a_scalar_loop(rows):
    draws = torch.tensor([row[0] for row in rows])
    drafts = torch.tensor([row[1] for row in rows], dtype=torch.int64).reshape(len(rows), -1)
    assert verify_chain(draws, drafts).tolist() == [count(*row) for row in rows]


def test_wrong_width_is_named():
    with pytest.raises(ShapeError, match=r"draft_tokens is \[1, 3\] int64, allowed is \[1, 2\] int32 or int64"):
        verify_chain(torch.zeros(1, 3).long(), torch.zeros(1, 3).long())
