from __future__ import annotations

from functools import partial

import pytest
import torch

from slipstream.base.errors import ShapeError
from slipstream.kernels.norm.add_rms_norm.contract import add_rms_norm
from support import mutants
from support.kernel_cases import cases_of, check_case, check_mutant

OPERATION = "norm/add_rms_norm"
FAULTS = [("norm_of_x", "gemma"), ("old_residual", "gemma"), ("unrounded_sum", "gemma_bf16")]


@pytest.mark.parametrize("case", cases_of(OPERATION), ids=lambda case: case.name)
def test_case_matches_the_oracle(case):
    check_case(OPERATION, case)


@pytest.mark.parametrize(("fault", "case_name"), FAULTS)
def test_fault_is_outside_the_tolerance(fault, case_name):
    check_mutant(OPERATION, case_name, partial(mutants.add_rms_norm, fault=fault), mutants.add_rms_norm)


def test_operands_are_left_alone():
    """The stream that a drafter tapped must not change under it."""
    x, residual = torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(0))
    before = (x.clone(), residual.clone())
    add_rms_norm(x, residual, torch.zeros(8), 1e-6, gemma=True)
    assert torch.equal(x, before[0])
    assert torch.equal(residual, before[1])


@pytest.mark.parametrize(
    ("residual", "message"),
    [
        (torch.zeros(2, 7), r"residual is \[2, 7\]"),
        (torch.zeros(2, 8, dtype=torch.bfloat16), "residual is .* bfloat16"),
    ],
)
def test_residual_must_agree(residual, message):
    with pytest.raises(ShapeError, match=message):
        add_rms_norm(torch.zeros(2, 8), residual, torch.zeros(8), 1e-6, gemma=True)


def test_width_must_agree():
    with pytest.raises(ShapeError, match=r"x is \[2, 8\]"):
        add_rms_norm(torch.zeros(2, 8), torch.zeros(2, 8), torch.zeros(9), 1e-6, gemma=True)
