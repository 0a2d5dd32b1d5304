from __future__ import annotations

from functools import partial

import pytest
import torch

from slipstream.base.errors import ShapeError
from slipstream.kernels.norm.rms_norm.contract import rms_norm
from support import mutants
from support.kernel_cases import cases_of, check_case, check_mutant

OPERATION = "norm/rms_norm"
FAULTS = [
    ("always_one", "plain"),
    ("forgotten_one", "gemma"),
    ("one_twice", "gemma"),
    ("bf16_inside", "gemma_bf16"),
    ("bf16_inside", "plain_bf16"),
    ("no_eps", "tiny_rows"),
    ("eps_on_root", "tiny_rows"),
]


@pytest.mark.parametrize("case", cases_of(OPERATION), ids=lambda case: case.name)
def test_case_matches_the_oracle(case):
    check_case(OPERATION, case)


@pytest.mark.parametrize(("fault", "case_name"), FAULTS)
def test_fault_is_outside_the_tolerance(fault, case_name):
    check_mutant(OPERATION, case_name, partial(mutants.rms_norm, fault=fault), mutants.rms_norm)


def test_stored_offset_of_zero_leaves_the_scale_alone():
    """Weights are used as stored and the 1 is added once: S11 of the public faults."""
    x = torch.randn(3, 16, generator=torch.Generator().manual_seed(0))
    normed = rms_norm(x, torch.zeros(16), 1e-6, gemma=True)
    assert torch.allclose(normed.square().mean(1), torch.ones(3), atol=1e-5)


def test_empty_batch():
    assert rms_norm(torch.empty(0, 8), torch.zeros(8), 1e-6, gemma=True).shape == (0, 8)


def test_width_must_agree():
    with pytest.raises(ShapeError, match=r"rms_norm: x is \[2, 8\] float32, allowed is \[num_tokens, 9\]"):
        rms_norm(torch.zeros(2, 8), torch.zeros(9), 1e-6, gemma=True)
