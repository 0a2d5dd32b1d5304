"""Sampling parameters: every edge of every range, on both sides, and every wrong type."""

import math

import msgspec
import pytest

from slipstream.base.errors import RequestError, UnsupportedFeature
from slipstream.wire.sampling_params import MAX_STOP_STRINGS, MAX_TEMPERATURE, MIN_TEMPERATURE, SamplingParams

ALLOWED = [
    ("temperature", 0),
    ("temperature", 1.0),
    ("temperature", MAX_TEMPERATURE),
    ("top_k", -1),
    ("top_k", 0),
    ("top_k", 10**9),
    ("top_p", 1),
    ("top_p", 1e-12),
    ("min_p", 0),
    ("min_p", 1.0),
    ("seed", 2**63 - 1),
    ("seed", -(2**63)),
    ("max_tokens", 1),
    ("max_tokens", None),
    ("stop", "end"),
    ("stop", ["a", "b"]),
    ("stop_token_ids", [0, 7]),
    ("logprobs", 0),
]

REFUSED = [
    ("temperature", -0.001),
    ("temperature", MAX_TEMPERATURE + 0.001),
    ("temperature", math.nan),
    ("temperature", math.inf),
    ("temperature", "1"),
    ("temperature", True),
    ("temperature", None),
    ("top_k", -2),
    ("top_k", 1.5),
    ("top_k", True),
    ("top_p", 0),
    ("top_p", 1.0001),
    ("top_p", -0.1),
    ("top_p", math.nan),
    ("min_p", -0.0001),
    ("min_p", 1.0001),
    ("seed", 2**63),
    ("seed", -(2**63) - 1),
    ("seed", 1.0),
    ("max_tokens", 0),
    ("max_tokens", -5),
    ("max_tokens", 2.0),
    ("stop", [""]),
    ("stop", [1]),
    ("stop", 3),
    ("stop", ["x"] * (MAX_STOP_STRINGS + 1)),
    ("stop_token_ids", [-1]),
    ("stop_token_ids", ["1"]),
    ("stop_token_ids", 5),
    ("logprobs", -1),
    ("logprobs", True),
    ("ignore_eos", 1),
    ("skip_special_tokens", "yes"),
    ("include_stop_str_in_output", None),
]


@pytest.mark.parametrize(("name", "value"), ALLOWED)
def test_values_at_the_edge_are_allowed(name: str, value: object) -> None:
    SamplingParams(**{name: value})


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_values_past_the_edge_are_refused_and_named(name: str, value: object) -> None:
    with pytest.raises(RequestError) as caught:
        SamplingParams(**{name: value})
    assert caught.value.param == name
    assert name in str(caught.value)


def test_alternatives_per_position_are_refused_with_the_reason() -> None:
    with pytest.raises(UnsupportedFeature, match="not served yet"):
        SamplingParams(logprobs=5)


def test_off_values_have_one_spelling() -> None:
    assert SamplingParams(top_k=-1).top_k == 0
    assert SamplingParams(stop="end").stop == ("end",)


def test_a_tiny_temperature_is_raised_but_zero_stays_greedy() -> None:
    assert SamplingParams(temperature=1e-9).temperature == MIN_TEMPERATURE
    assert not SamplingParams(temperature=1e-9).is_greedy
    assert SamplingParams(temperature=0).is_greedy


def test_greedy_has_no_filters_whatever_is_asked() -> None:
    assert not SamplingParams(temperature=0, top_k=5, top_p=0.5).has_filters
    assert SamplingParams(temperature=1, top_k=5).has_filters
    assert not SamplingParams(temperature=1).has_filters


def test_the_wire_form_comes_back_equal() -> None:
    params = SamplingParams(temperature=0.7, top_p=0.9, seed=-3, stop=["a"], stop_token_ids=[4], max_tokens=None)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(params), type=SamplingParams) == params
