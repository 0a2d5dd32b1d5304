"""Biases and early ends at every ladder row, one value at a time."""

from __future__ import annotations

import pytest
import torch

from slipstream.base.errors import ShapeError
from slipstream.kernels.sampling.bias_logits.cases import CASES, BiasCase, make_inputs
from slipstream.kernels.sampling.bias_logits.contract import bias_logits


def expected(case: BiasCase, given: dict[str, torch.Tensor]) -> torch.Tensor:
    logits = given["logits"].clone()
    for request in range(len(logits)):
        for row in range(logits.shape[1]):
            for token, value in case.biases[request]:
                logits[request, row, token] += value
            if case.base_positions[request] + row + 1 < case.first_end_positions[request]:
                logits[request, row, list(case.end_tokens[request])] = -torch.inf
    return logits


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_equals_one_value_at_a_time(case: BiasCase):
    given = make_inputs(case)
    assert torch.equal(bias_logits(**given), expected(case, given))


@pytest.mark.parametrize("shift", [-1, 1])
def test_the_cases_know_the_first_allowed_end_to_the_position(shift: int):
    case = next(case for case in CASES if case.name == "early")
    given = make_inputs(case)
    given["first_end_position"] += shift
    assert not torch.equal(bias_logits(**given), expected(case, given))


@pytest.mark.parametrize("fault", [torch.nan, torch.inf], ids=str)
def test_a_fault_is_not_hidden_by_a_ban(fault: float):
    case = next(case for case in CASES if case.name == "bias")
    given = make_inputs(case)
    given["logits"][0, 2, 5] = fault
    assert given["bias"][0, 5] == -torch.inf
    assert not torch.isfinite(bias_logits(**given)[0, 2].amax())
    assert torch.isfinite(bias_logits(**given)[0, 1].amax())


def test_wrong_dtypes_are_named():
    given = make_inputs(CASES[0])
    given["is_end_token"] = given["is_end_token"].long()
    with pytest.raises(ShapeError, match="is_end_token is .* int64, allowed is .* bool"):
        bias_logits(**given)
