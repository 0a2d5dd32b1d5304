from __future__ import annotations

from functools import partial

import pytest
import torch

from slipstream.base.errors import ShapeError
from slipstream.kernels.norm.add_rms_norm.contract import add_rms_norm
from slipstream.kernels.norm.sum_add_rms_norm.contract import sum_add_rms_norm
from support import mutants
from support.kernel_cases import cases_of, check_case, check_mutant, inputs_of

OPERATION = "norm/sum_add_rms_norm"
FAULTS = [
    ("no_part", "one_part"),
    ("last_split_lost", "parts"),
    ("norm_of_products", "parts"),
    ("extra_lost", "extra"),
    ("extra_twice", "extra"),
    ("unrounded_sum", "bf16"),
    ("extra_before_rounding", "extra_bf16"),
]


@pytest.mark.parametrize("case", cases_of(OPERATION), ids=lambda case: case.name)
def test_case_matches_the_oracle(case):
    check_case(OPERATION, case)


@pytest.mark.parametrize(("fault", "case_name"), FAULTS)
def test_fault_is_outside_the_tolerance(fault, case_name):
    mutant = partial(mutants.sum_add_rms_norm, fault=fault)
    check_mutant(OPERATION, case_name, mutant, mutants.sum_add_rms_norm)


@pytest.mark.parametrize("case_name", ["bf16", "extra_bf16"])
def test_it_is_the_layers_own_sequence_of_operations(case_name):
    """Sum and round, add the other output, add to the stream, normalise: bit for bit."""
    given = inputs_of(OPERATION, case_name)
    output = (given["parts"][0] + given["parts"][1] + given["parts"][2]).bfloat16()
    if given["extra"] is not None:
        output = output + given["extra"]
    wanted = add_rms_norm(output, given["residual"], given["weight"], given["eps"], given["gemma"])
    found = sum_add_rms_norm(**given)
    assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"parts": torch.zeros(0, 2, 8)}, "parts is"),
        ({"parts": torch.zeros(1, 3, 8)}, "parts is"),
        ({"parts": torch.zeros(1, 2, 8, dtype=torch.bfloat16)}, "parts is"),
        ({"extra": torch.zeros(2, 7)}, "extra is"),
        ({"extra": torch.zeros(2, 8, dtype=torch.bfloat16)}, "extra is"),
        ({"weight": torch.zeros(9)}, "residual is"),
    ],
)
def test_axes_and_dtypes_must_agree(change, message):
    given = {"parts": torch.zeros(1, 2, 8), "extra": None, "residual": torch.zeros(2, 8), "weight": torch.zeros(8)}
    with pytest.raises(ShapeError, match=message):
        sum_add_rms_norm(**{**given, **change}, eps=1e-6, gemma=True)
