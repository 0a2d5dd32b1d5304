"""Shares and ratios: the interval covers as often as it says, the error is that of the scatter."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.evaluation.estimates import describe_share, estimate_ratio, estimate_share


@given(st.integers(0, 400), st.integers(0, 400))
def test_an_interval_holds_its_share_and_stays_within_bounds(right, wrong):
    found = estimate_share(right, right + wrong)
    assert 0.0 <= found.low <= found.share <= found.high <= 1.0
    more = estimate_share(right * 4, (right + wrong) * 4)
    assert more.high - more.low <= found.high - found.low


@pytest.mark.parametrize("probability", [0.05, 0.5, 0.9])
def test_the_interval_covers_the_truth_about_95_times_of_100(probability):
    rng = random.Random(5)
    covered = 0
    for _ in range(1000):
        found = estimate_share(sum(rng.random() < probability for _ in range(60)), 60)
        covered += found.low <= probability <= found.high
    assert 920 <= covered <= 985


def test_impossible_counts_are_refused():
    for right, trials in ((-1, 3), (4, 3)):
        with pytest.raises(ValueError, match=f"{right} of {trials}"):
            estimate_share(right, trials)


def test_a_ratio_weighs_groups_by_their_size():
    found = estimate_ratio([10.0, 1.0], [10.0, 2.0])
    assert found.value == pytest.approx(11 / 12)
    assert found.num_groups == 2


def test_the_error_of_a_ratio_is_its_scatter_over_repetitions():
    rng = random.Random(3)
    values, errors = [], []
    for _ in range(400):
        sizes = [rng.uniform(50, 150) for _ in range(30)]
        found = estimate_ratio([size * rng.gauss(1.0, 0.2) for size in sizes], sizes)
        values.append(found.value)
        errors.append(found.standard_error)
    mean = sum(values) / len(values)
    scatter = math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))
    assert sum(errors) / len(errors) == pytest.approx(scatter, rel=0.15)


def test_one_group_says_nothing_about_scatter():
    assert estimate_ratio([2.0], [4.0]).standard_error == math.inf
    for numerators, denominators in (([], []), ([1.0], [0.0]), ([1.0], [1.0, 2.0])):
        with pytest.raises(ValueError, match="a ratio of"):
            estimate_ratio(numerators, denominators)


def test_a_share_reads_as_percent():
    assert describe_share(estimate_share(85, 100)) == "85 % (77-91)"
    assert describe_share(estimate_share(0, 0)) == "-"
