"""Noise of different purposes: the target's is the request's own, and no two have anything to do with each other."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch

from slipstream.kernels.sampling.gumbel_noise.reference import uniform_noise
from slipstream.kernels.sampling.purposes import Purpose, salt_of, seed_for
from support.statistics import chi_square_p

COUNT = 20_000


def uniforms(purpose: Purpose) -> torch.Tensor:
    """Uniforms of many positions of one seed, and of one position of many seeds."""
    numbers, same = torch.arange(COUNT), torch.full((COUNT,), 12345)
    token = torch.zeros(1, dtype=torch.int64)
    by_position = uniform_noise(seed_for(same, purpose), numbers, token)
    by_seed = uniform_noise(seed_for(numbers, purpose), torch.full((COUNT,), 17), token)
    return torch.cat([by_position, by_seed])[:, 0]


def grid_p(first: torch.Tensor, second: torch.Tensor) -> float:
    cells = (first * 16).long() * 16 + (second * 16).long()
    return chi_square_p(torch.bincount(cells, minlength=256), torch.ones(256))


def test_the_targets_noise_is_keyed_by_the_requests_seed():
    seeds = torch.tensor([0, -5, 2**62])
    assert torch.equal(seed_for(seeds, Purpose.TARGET), seeds)


def test_seeds_of_a_purpose_stay_apart():
    seeds = torch.arange(1000)
    keys = torch.cat([seed_for(seeds, purpose) for purpose in Purpose])
    assert len(set(keys.tolist())) == 4000


@pytest.mark.parametrize(("one", "other"), list(combinations(Purpose, 2)))
def test_purposes_are_independent(one: Purpose, other: Purpose):
    first, second = uniforms(one), uniforms(other)
    assert grid_p(first, second) > 1e-6
    assert grid_p(first[1:], second[:-1]) > 1e-6
    assert grid_p(first, first) < 1e-6, "the test must be able to fail"


def test_a_salt_is_what_the_seed_differs_by():
    for purpose in Purpose:
        assert int(seed_for(torch.tensor([77]), purpose)) == 77 ^ salt_of(purpose)
