from __future__ import annotations

from functools import partial

import pytest
import torch

from slipstream.base.errors import ShapeError
from slipstream.kernels.linear.sum_parts.contract import sum_parts
from support import mutants
from support.kernel_cases import cases_of, check_case, check_mutant

OPERATION = "linear/sum_parts"
FAULTS = [
    ("shifted", "one"),
    ("first_lost", "twelve"),
    ("rounded_between", "rounded"),
    ("backwards", "in_order"),
]


@pytest.mark.parametrize("case", cases_of(OPERATION), ids=lambda case: case.name)
def test_case_matches_the_oracle(case):
    check_case(OPERATION, case)


@pytest.mark.parametrize(("fault", "case_name"), FAULTS)
def test_fault_is_outside_the_tolerance(fault, case_name):
    check_mutant(OPERATION, case_name, partial(mutants.sum_parts, fault=fault), mutants.sum_parts)


@pytest.mark.parametrize(
    ("parts", "dtype", "message"),
    [
        (torch.zeros(2, 3), torch.float32, r"parts is \[2, 3\] float32, allowed is \[num_splits >= 1"),
        (torch.zeros(2, 3, 4).bfloat16(), torch.float32, r"parts is \[2, 3, 4\] bfloat16"),
        (torch.zeros(0, 3, 4), torch.float32, r"parts is \[0, 3, 4\] float32"),
        (torch.zeros(2, 3, 4), torch.float16, "summed into float32 or bfloat16, not torch.float16"),
    ],
)
def test_disagreements_are_refused(parts, dtype, message):
    with pytest.raises(ShapeError, match=message):
        sum_parts(parts, dtype)
