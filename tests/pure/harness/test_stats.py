from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.harness.stats import acceptance_length, draft_acceptance_rate, median, percentile, summarize

VALUES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50)


@given(VALUES)
def test_median_is_the_standard_one(values):
    assert median(values) == pytest.approx(statistics.median(values))


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=50))
def test_percentiles_agree_with_inclusive_quantiles(values):
    expected = statistics.quantiles(values, n=10, method="inclusive")
    assert [percentile(values, i / 10) for i in range(1, 10)] == pytest.approx(expected, abs=1e-6)


@given(VALUES)
def test_a_summary_is_ordered_and_bounded(values):
    summary = summarize(values)
    assert summary is not None
    assert summary.min <= summary.p50 <= summary.p90 <= summary.p99 <= summary.max
    assert summary.count == len(values)
    assert summary.mean == pytest.approx(math.fsum(values) / len(values))


def test_no_values_have_no_summary_and_no_percentile():
    assert summarize([]) is None
    with pytest.raises(ValueError, match="0 values"):
        percentile([], 0.5)
    with pytest.raises(ValueError, match=r"at 1\.5"):
        percentile([1.0], 1.5)


def test_acceptance_length_is_emitted_tokens_per_verify_step():
    assert acceptance_length(10, 10) == 1.0
    assert acceptance_length(10, 35) == 3.5
    assert acceptance_length(0, 0) is None
    assert acceptance_length(3, 0) is None, "a server that counts steps but not tokens has not told"
    assert draft_acceptance_rate(30, 15) == 0.5
    assert draft_acceptance_rate(0, 0) is None
