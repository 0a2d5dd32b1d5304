from __future__ import annotations

from functools import partial

import pytest
import torch

from slipstream.base.errors import ShapeError
from slipstream.kernels.moe.sum_swiglu_oai.contract import sum_swiglu_oai
from slipstream.kernels.moe.swiglu_oai.contract import swiglu_oai
from support import mutants
from support.kernel_cases import cases_of, check_case, check_mutant, inputs_of

OPERATION = "moe/sum_swiglu_oai"
FAULTS = [
    ("part_lost", "one_split"),
    ("part_lost", "small"),
    ("interleaved", "small"),
    ("parts_clamped", "beyond_the_clamp"),
    ("not_rounded", "rounded"),
]


@pytest.mark.parametrize("case", cases_of(OPERATION), ids=lambda case: case.name)
def test_case_matches_the_oracle(case):
    check_case(OPERATION, case)


@pytest.mark.parametrize(("fault", "case_name"), FAULTS)
def test_fault_is_outside_the_tolerance(fault, case_name):
    check_mutant(OPERATION, case_name, partial(mutants.sum_swiglu_oai, fault=fault), mutants.sum_swiglu_oai)


def test_it_is_the_activation_of_the_rounded_sum():
    parts = inputs_of(OPERATION, "small")["parts"]
    total = (parts[0] + parts[1] + parts[2]).bfloat16()
    assert torch.equal(sum_swiglu_oai(parts, 1.702, 7.0), swiglu_oai(total, 1.702, 7.0))


@pytest.mark.parametrize(
    "parts", [torch.zeros(0, 2, 8), torch.zeros(1, 2, 7), torch.zeros(2, 8), torch.zeros(1, 2, 8).bfloat16()]
)
def test_other_parts_are_refused(parts):
    with pytest.raises(ShapeError, match="parts is"):
        sum_swiglu_oai(parts, 1.702, 7.0)
