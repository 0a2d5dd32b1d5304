"""Stored drafts against a scalar loop."""

from __future__ import annotations

import pytest
import torch

from slipstream.base.errors import ShapeError
from slipstream.kernels.case import Case
from slipstream.kernels.step.store_drafts.cases import CASES, make_inputs
from slipstream.kernels.step.store_drafts.contract import store_drafts


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_only_the_named_rows_change(case: Case):
    given = make_inputs(case)
    wanted = given["draft_tokens"].tolist()
    for entry, row in enumerate(case.sequence("rows")):
        if row >= 0:
            wanted[row] = given["drafts"][entry].tolist()
    store_drafts(**given)
    assert given["draft_tokens"].tolist() == wanted


def test_wrong_width_is_named():
    with pytest.raises(ShapeError, match=r"drafts is \[1, 3\] int64, allowed is \[1, 2\] int64"):
        store_drafts(torch.tensor([0]), torch.zeros(1, 3).long(), torch.zeros(4, 2).long())
