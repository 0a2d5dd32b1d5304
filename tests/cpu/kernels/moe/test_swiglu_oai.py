from __future__ import annotations

import math
from functools import partial

import pytest
import torch

from slipstream.base.errors import ShapeError
from slipstream.kernels.moe.swiglu_oai.contract import swiglu_oai
from support import mutants
from support.kernel_cases import cases_of, check_case, check_mutant

OPERATION = "moe/swiglu_oai"
FAULTS = [
    ("interleaved", "small"),
    ("swapped", "small"),
    ("no_one", "small"),
    ("alpha_is_one", "small"),
    ("alpha_is_fixed", "small"),
    ("gate_clamped_below", "beyond_the_clamp"),
    ("up_not_clamped", "beyond_the_clamp"),
    ("bf16_inside", "bf16"),
]


@pytest.mark.parametrize("case", cases_of(OPERATION), ids=lambda case: case.name)
def test_case_matches_the_oracle(case):
    check_case(OPERATION, case)


@pytest.mark.parametrize(("fault", "case_name"), FAULTS)
def test_fault_is_outside_the_tolerance(fault, case_name):
    check_mutant(OPERATION, case_name, partial(mutants.swiglu_oai, fault=fault), mutants.swiglu_oai)


@pytest.mark.parametrize(
    ("gate", "up", "expected"),
    [
        (100.0, 100.0, 8.0 * 7.0 / (1 + math.exp(-1.702 * 7.0))),
        (100.0, -100.0, -6.0 * 7.0 / (1 + math.exp(-1.702 * 7.0))),
        (-9.0, 0.0, -9.0 / (1 + math.exp(1.702 * 9.0))),
        (-8.0, 100.0, 8.0 * -8.0 / (1 + math.exp(1.702 * 8.0))),
        (0.0, 5.0, 0.0),
        (2.0, -1.0, 0.0),
    ],
)
def test_single_values(gate, up, expected):
    """Far beyond the clamps, with both signs: S2 of the public faults passes on small values."""
    result = swiglu_oai(torch.tensor([[gate, up]]), 1.702, 7.0)
    assert result.item() == pytest.approx(expected, rel=1e-5, abs=1e-12)


def test_odd_width_is_refused():
    with pytest.raises(ShapeError, match=r"gate_up is \[2, 7\] float32, allowed is \[num_tokens, 2 \* intermediate"):
        swiglu_oai(torch.zeros(2, 7), 1.702, 7.0)
