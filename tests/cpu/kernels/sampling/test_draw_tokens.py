"""Draws against the definition, ties, excluded tokens and bad rows."""

from __future__ import annotations

import pytest
import torch

from slipstream.base.errors import ShapeError
from slipstream.kernels.sampling.draw_tokens.cases import CASES, DrawCase, make_inputs
from slipstream.kernels.sampling.draw_tokens.contract import draw_tokens
from slipstream.kernels.sampling.gumbel_noise.contract import gumbel_noise


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_equals_the_definition(case: DrawCase):
    given = make_inputs(case)
    drawn = draw_tokens(**given)
    for row, temperature in enumerate(case.temperatures):
        scores = given["logits"][row].double()
        scores = scores - scores.max()
        if temperature > 0:
            noise = gumbel_noise(given["seed"][row : row + 1], given["position"][row : row + 1], given["token_ids"])
            scores = scores / temperature + noise[0].double()
            best = scores.sort(descending=True).values
            assert best[0] - best[1] > 1e-5, "the case lost its margin"
        column = int((scores == scores.max()).nonzero()[0])
        assert int(drawn[row]) == int(given["token_ids"][column])


def test_greedy_rows_are_the_same_with_and_without_noise():
    logits = torch.randn(40, 50, generator=torch.Generator().manual_seed(0)).mul(2).round()
    zeros = torch.zeros(40)
    numbers = torch.arange(40)
    with_noise = draw_tokens(logits, zeros, numbers, numbers, has_noise=True)
    without = draw_tokens(logits, zeros, numbers, numbers, has_noise=False)
    assert torch.equal(with_noise, without)
    ties = (logits == logits.amax(-1, keepdim=True)).sum(-1)
    assert (ties > 1).any(), "the test lost its ties"
    assert torch.equal(without, (logits == logits.amax(-1, keepdim=True)).int().argmax(-1))


def test_close_logits_far_from_zero_stay_apart():
    """Subtracting the maximum must not merge neighbouring floats."""
    low = torch.tensor(30000.0)
    high = torch.nextafter(low, torch.tensor(torch.inf))
    logits = torch.stack([low, high, low])[None]
    assert draw_tokens(logits, torch.zeros(1), torch.zeros(1).long(), torch.zeros(1).long(), has_noise=False) == 1


def test_the_coldest_temperature_does_not_overflow_into_a_tie():
    logits = torch.tensor([[10.0, 20.0, 30.0, 25.0]])
    zero = torch.zeros(1, dtype=torch.int64)
    assert draw_tokens(logits, torch.tensor([2e-38]), zero, zero, has_noise=True) == 2


def test_excluded_tokens_are_never_drawn():
    logits = torch.full((500, 6), -torch.inf)
    logits[:, 2] = -30.0
    logits[:, 5] = -30.0
    drawn = draw_tokens(logits, torch.full((500,), 50.0), torch.zeros(500).long(), torch.arange(500), has_noise=True)
    assert set(drawn.tolist()) == {2, 5}


@pytest.mark.parametrize("fault", [torch.nan, torch.inf, -torch.inf], ids=str)
@pytest.mark.parametrize("has_noise", [True, False])
def test_a_bad_row_is_contained_and_gives_a_valid_token(fault: float, has_noise: bool):
    logits = torch.randn(3, 9, generator=torch.Generator().manual_seed(1))
    temperature = torch.tensor([1.0, 1.0, 1.0]) * has_noise
    numbers = torch.arange(3)
    good = draw_tokens(logits, temperature, numbers, numbers, has_noise=has_noise)
    broken = logits.clone()
    broken[1] = fault
    drawn = draw_tokens(broken, temperature, numbers, numbers, has_noise=has_noise)
    assert drawn[0] == good[0]
    assert drawn[2] == good[2]
    assert 0 <= int(drawn[1]) < 9


def test_wrong_shapes_are_named():
    one = torch.zeros(1)
    with pytest.raises(ShapeError, match="token_ids is"):
        draw_tokens(torch.zeros(1, 4), one, one.long(), one.long(), token_ids=torch.arange(3), has_noise=True)
