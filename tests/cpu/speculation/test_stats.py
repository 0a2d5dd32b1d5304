"""What the acceptance figures mean, on a table small enough to count by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.speculation.stats import (
    acceptance_rates,
    conditional_acceptance_rates,
    count_accepted,
    draft_acceptance,
)


def test_a_table_counted_by_hand():
    counts = count_accepted([3, 0, 1, 3, 2, 0, 0, 3], 3)
    assert counts == (3, 1, 1, 3)
    assert acceptance_rates(counts) == (5 / 8, 4 / 8, 3 / 8)
    assert conditional_acceptance_rates(counts) == (5 / 8, 4 / 5, 3 / 4)
    assert draft_acceptance(12, 24) == 0.5


def test_nothing_happened():
    assert count_accepted([], 2) == (0, 0, 0)
    assert acceptance_rates((0, 0, 0)) == (0.0, 0.0)
    assert conditional_acceptance_rates((0, 0, 0)) == (0.0, 0.0)
    assert conditional_acceptance_rates((4, 0, 0)) == (0.0, 0.0)
    assert draft_acceptance(0, 0) == 0.0


@given(st.lists(st.integers(0, 5), min_size=1, max_size=50))
def test_the_figures_agree_with_each_other(accepted: list[int]):
    counts = count_accepted(accepted, 5)
    rates, conditional = acceptance_rates(counts), conditional_acceptance_rates(counts)
    assert sum(rates) == pytest.approx(sum(accepted) / len(accepted))
    assert sum(rates) == pytest.approx(5 * draft_acceptance(sum(accepted), 5 * len(accepted)))
    product = 1.0
    for rate, one in zip(rates, conditional, strict=True):
        product *= one
        assert rate == pytest.approx(product)
