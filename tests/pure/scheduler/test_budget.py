from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.base.errors import ConfigError
from slipstream.scheduler.budget import SchedulerConfig, share_prefill_budget

GOOD = {"max_num_seqs": 4, "prefill_chunk_tokens": 16, "page_size": 4, "max_model_len": 64}


def test_the_configuration_derives_rows_and_ladder():
    config = SchedulerConfig(**GOOD, draft_len=3, max_steps_in_flight=2)
    assert (config.max_rows, config.query_len) == (4, 4)
    assert SchedulerConfig(**GOOD).query_len == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_num_seqs", 0),
        ("prefill_chunk_tokens", 0),
        ("page_size", 0),
        ("max_model_len", 1),
        ("draft_len", -1),
        ("max_steps_in_flight", 0),
        ("max_steps_in_flight", 3),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(name, value):
    with pytest.raises(ConfigError, match=f"{name}={value}: give"):
        SchedulerConfig(**{**GOOD, name: value})


@pytest.mark.parametrize(
    ("num_remaining", "budget", "grants"),
    [
        ([], 8, []),
        ([3], 8, [3]),
        ([30], 8, [8]),
        ([30, 2], 8, [6, 2]),  # a short prompt does not wait for a long one
        ([30, 30], 8, [8, 0]),  # equal ones go one after the other
        ([30, 29], 8, [4, 4]),
        ([30, 20, 2], 8, [4, 2, 2]),
        ([2, 30], 8, [2, 6]),
        ([30, 1], 1, [1, 0]),
    ],
)
def test_the_budget_is_shared_by_age_and_length(num_remaining, budget, grants):
    assert share_prefill_budget(num_remaining, budget) == grants


@settings(deadline=None, database=None)
@given(num_remaining=st.lists(st.integers(1, 50), min_size=1, max_size=8), budget=st.integers(1, 60))
def test_the_budget_is_never_exceeded_nor_wasted_and_the_oldest_always_moves(num_remaining, budget):
    grants = share_prefill_budget(num_remaining, budget)
    assert sum(grants) == min(budget, sum(num_remaining))
    assert all(0 <= grant <= remaining for grant, remaining in zip(grants, num_remaining, strict=True))
    assert grants[0] >= min(num_remaining[0], (budget + 1) // 2)
