"""The exponential and the logarithm against the library's, at their edges, and by their bits."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from slipstream.kernels.sampling.exact_math import LOWEST_SCORE, exact_log, fixed_point, relative_weight

BOUND = 2.0**-44
EXPECTED = [
    "0x1.cf46d991bdbb0p-1",
    "0x1.78b56362cef2bp-2",
    "0x1.50385c094f422p-4",
    "0x1.639e3175a688dp-25",
    "0x1.245639c3a49c7p-433",
]


def scores() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    spread = [torch.rand(20_000, generator=generator) * scale for scale in (1e-30, 1e-6, 1.0, 30.0, 700.0)]
    return -torch.cat(spread)


def test_weights_are_near_the_exponential():
    wanted = scores().double().exp()
    assert ((relative_weight(scores()) - wanted).abs() <= 1.01 * BOUND * wanted).all()


def test_logarithms_are_near_the_library_s():
    weights = torch.cat([scores().double().exp(), 1 - scores()[20_000:40_000].double()])
    wanted = weights.log()
    assert ((exact_log(weights) - wanted).abs() <= BOUND * wanted.abs().clamp(min=1.0)).all()


@given(st.floats(-700, 0, width=32))
def test_the_logarithm_undoes_the_weight(score: float):
    assert float(exact_log(relative_weight(torch.tensor([score])))) == pytest.approx(score, rel=1e-12, abs=1e-12)


def test_edges():
    edges = torch.tensor([0.0, -0.0, -math.inf, LOWEST_SCORE, -700.0001, -3e38])
    assert relative_weight(edges)[:3].tolist() == [1.0, 1.0, 0.0]
    assert (relative_weight(edges)[3:] > 0).tolist() == [True, False, False]
    assert exact_log(torch.tensor([1.0, 0.0, 2.0**-900, 2.0], dtype=torch.float64)).tolist() == [
        0.0,
        -math.inf,
        pytest.approx(-900 * math.log(2)),
        pytest.approx(math.log(2)),
    ]


def test_a_fixed_point_sum_has_no_order():
    weights = relative_weight(scores())
    mass = fixed_point(weights, 40)
    assert mass.sum() == mass.flip(0).sum() == mass[torch.randperm(len(mass))].sum()
    assert fixed_point(torch.ones(1, dtype=torch.float64), 40).item() == 2**40
    assert fixed_point(torch.tensor([2.0**-41, 2.0**-42], dtype=torch.float64), 40).tolist() == [1, 0]


def test_the_bits_are_fixed():
    """What another device must compute: a change of the steps is a change of every kept set near a cut."""
    few = torch.tensor([-0.1, -1.0, -2.5, -17.0, -300.0])
    assert [value.hex() for value in relative_weight(few).tolist()] == EXPECTED
