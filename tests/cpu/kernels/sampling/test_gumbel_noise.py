"""The noise against integer arithmetic in plain Python, frozen values, and statistics that a weak hash fails."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from slipstream.base.errors import ShapeError
from slipstream.kernels.sampling.gumbel_noise.cases import CASES, NoiseCase, make_inputs
from slipstream.kernels.sampling.gumbel_noise.contract import gumbel_noise
from support.statistics import chi_square_p

LOW = 0xFFFFFFFF
FROZEN = [
    [0.0730817616, -1.40321112, -0.438823402],
    [-0.97944051, -0.540422916, -0.799205661],
    [-0.158594862, -1.04308498, 1.83749604],
]


def scramble(word: int) -> int:
    word ^= word >> 16
    word = word * 0x7FEB352D & LOW
    word ^= word >> 15
    word = word * 0x31848BAB & LOW
    return word ^ word >> 16


def naive_noise(seed: int, position: int, token: int) -> float:
    low, high, place = seed & LOW, seed >> 32 & LOW, position & LOW
    first = scramble(scramble(scramble(low ^ 0x51ED270B) ^ high) ^ place)
    second = scramble(scramble(scramble(place ^ 0x2545F491) ^ low) ^ high)
    word = scramble(scramble(token + first & LOW) ^ second)
    return -math.log(-math.log(((word >> 9) + 0.5) / 2**23))


def uniforms(seed: torch.Tensor, position: torch.Tensor, num_ids: int) -> torch.Tensor:
    noise = gumbel_noise(seed, position, torch.arange(num_ids)).double()
    return torch.exp(-torch.exp(-noise))


def full(count: int, value: int) -> torch.Tensor:
    return torch.full((count,), value, dtype=torch.int64)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_equals_plain_integer_arithmetic(case: NoiseCase):
    given = make_inputs(case)
    noise = gumbel_noise(**given)
    wanted = [
        [naive_noise(seed, position, int(token)) for token in given["token_ids"]]
        for seed, position in zip(case.seeds, case.positions, strict=True)
    ]
    np.testing.assert_array_max_ulp(noise.numpy(), np.array(wanted, dtype=np.float32), maxulp=1)


def test_frozen_values():
    """Seeds are promises to users: a change of these numbers changes every seeded text."""
    noise = gumbel_noise(torch.tensor([0, 1234, -7]), torch.tensor([1, 77, 100_000]), torch.tensor([0, 1, 200_063]))
    wanted = torch.tensor(FROZEN)
    torch.testing.assert_close(noise, wanted, rtol=3e-7, atol=0)


def test_strictly_inside_float32():
    low, high = (0 + 0.5) * 2**-23, (2**23 - 1 + 0.5) * 2**-23
    as_float = torch.tensor([low, high], dtype=torch.float32)
    assert as_float.double().tolist() == [low, high]
    assert low > 0
    assert as_float[1] < 1
    noise = gumbel_noise(torch.arange(40), full(40, 3), torch.arange(5000))
    assert torch.isfinite(noise).all()
    assert -2.9 < noise.min() < -1.5
    assert 10 < noise.max() < 16.7


def test_a_token_does_not_depend_on_its_column_or_batch():
    seed, position = torch.tensor([5, -9, 5]), torch.tensor([4, 4, 8])
    whole = gumbel_noise(seed, position, torch.arange(1003))
    for row in range(3):
        alone = gumbel_noise(seed[row : row + 1], position[row : row + 1], torch.tensor([1002, 17, 500]))
        assert torch.equal(alone[0], whole[row, [1002, 17, 500]])


@pytest.mark.parametrize("other", [5 + (1 << 32), 5 + (1 << 62), 5 - (1 << 63), 6, -5], ids=str)
def test_any_bit_of_the_seed_changes_everything(other: int):
    pair = uniforms(torch.tensor([5, other]), full(2, 9), 4000)
    assert (pair[0] == pair[1]).float().mean() < 0.01
    assert abs(torch.corrcoef(pair)[0, 1]) < 0.08


@pytest.mark.parametrize("axis", ["positions", "seeds", "high_seeds", "tokens"])
def test_uniform_and_uncorrelated_along_every_axis(axis: str):
    count = 1000
    numbers = torch.arange(count)
    if axis == "positions":
        sample = uniforms(full(count, 42), numbers, 300)
    elif axis == "seeds":
        sample = uniforms(numbers, full(count, 42), 300)
    elif axis == "high_seeds":
        sample = uniforms(numbers << 32, full(count, 42), 300)
    else:
        sample = uniforms(torch.arange(300), full(300, 42), count).T
    counts = torch.histc(sample.float(), 100, 0, 1)
    assert chi_square_p(counts, torch.ones(100)) > 1e-6
    unit = (sample - 0.5) * math.sqrt(12)
    for lag in (1, 2, 3, 16, 64):
        product = unit[lag:] * unit[:-lag]
        assert abs(product.mean()) * math.sqrt(product.numel()) < 5.5
        diagonal = unit[lag:, lag:] * unit[:-lag, :-lag]
        assert abs(diagonal.mean()) * math.sqrt(diagonal.numel()) < 5.5


def test_a_weak_hash_fails_the_same_statistics():
    """One multiplication without a finaliser: the correlation test above must be able to fail."""
    place, token = torch.arange(1000)[:, None], torch.arange(300)[None, :]
    weak = (((place * 300 + token) * 0x7FEB352D) & LOW).double() / 2**32
    unit = (weak - weak.mean()) * math.sqrt(12)
    worst = max(abs((unit[lag:] * unit[:-lag]).mean()) * math.sqrt(unit[lag:].numel()) for lag in (1, 2, 3, 16, 64))
    assert worst > 5.5


def test_wrong_shapes_are_named():
    with pytest.raises(ShapeError, match=r"position is \[2\] int64, allowed is \[3\] int64"):
        gumbel_noise(torch.arange(3), torch.arange(2), torch.arange(4))
    with pytest.raises(ShapeError, match=r"seed is \[3\] float32, allowed is \[any\] int64"):
        gumbel_noise(torch.zeros(3), torch.arange(3), torch.arange(4))
