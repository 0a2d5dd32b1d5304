"""The catalogue is consistent with the engine's snapshot, and says what it means."""

from __future__ import annotations

import re

import pytest

from slipstream.metrics.catalog import CATALOG, CONTEXT_TOKENS, KEPT_FOR_DASHBOARDS, context_bounds
from slipstream.wire.messages import EngineStats

VLLM_BOUNDS = {
    "vllm:time_to_first_token_seconds": (0.001, 2560.0, 22),
    "vllm:e2e_request_latency_seconds": (0.3, 7680.0, 21),
    "vllm:iteration_tokens_total": (1.0, 16384.0, 13),
}


def test_names_are_unique_and_well_formed():
    names = [metric.name for metric in CATALOG]
    assert len(names) == len(set(names))
    assert all(re.fullmatch(r"(vllm|slipstream):[a-z0-9_]+", name) for name in names)


@pytest.mark.parametrize("metric", CATALOG, ids=lambda metric: metric.name)
def test_every_metric_is_explained_and_has_a_source_that_exists(metric):
    assert metric.meaning.endswith(".")
    assert metric.source is None or metric.source in EngineStats.__struct_fields__
    assert (metric.kind == "histogram") == bool(metric.bounds or metric.name in CONTEXT_COUNTS)
    assert list(metric.bounds) == sorted(set(metric.bounds))
    assert "le" not in metric.labels


CONTEXT_COUNTS = {m.name for m in CATALOG if m.kind == "histogram" and m.bounds == CONTEXT_TOKENS}


@pytest.mark.parametrize("name", VLLM_BOUNDS)
def test_bounds_are_those_of_the_dashboards(name):
    bounds = next(metric.bounds for metric in CATALOG if metric.name == name)
    assert (bounds[0], bounds[-1], len(bounds)) == VLLM_BOUNDS[name]


def test_every_counter_of_the_engine_reaches_a_metric():
    """A field of the snapshot that no metric follows would be measured for nobody."""
    followed = {metric.source for metric in CATALOG}
    by_hand = {"num_pages", "num_accepted_per_position", "num_deferred"}
    assert set(EngineStats.__struct_fields__) - followed - by_hand == set()


def test_metrics_kept_for_dashboards_exist_and_have_a_reason():
    names = {metric.name for metric in CATALOG}
    assert set(KEPT_FOR_DASHBOARDS) <= names
    assert {m.name for m in CATALOG if m.group == "alias"} <= set(KEPT_FOR_DASHBOARDS)


@pytest.mark.parametrize(
    ("max_model_len", "bounds"),
    [(1, (1.0,)), (4, (1.0, 2.0)), (10, (1.0, 2.0, 5.0, 10.0)), (499, (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0))],
)
def test_context_bounds_are_the_1_2_5_series(max_model_len, bounds):
    assert context_bounds(max_model_len) == bounds
