"""Sampling parameters: every edge of every range, on both sides, and every wrong type."""

import math

import msgspec
import pytest

from slipstream.base.errors import RequestError
from slipstream.wire.grammar import GrammarSpec
from slipstream.wire.sampling_params import (
    MAX_BAD_WORDS,
    MAX_LOGPROBS,
    MAX_N,
    MAX_STOP_STRINGS,
    MAX_STOP_TOKEN_IDS,
    MAX_TEMPERATURE,
    MIN_TEMPERATURE,
    SamplingParams,
)

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
    ("stop_token_ids", [1] * MAX_STOP_TOKEN_IDS),
    ("max_tokens", 2**63 - 1),
    ("logprobs", 0),
    ("logprobs", MAX_LOGPROBS),
    ("prompt_logprobs", 0),
    ("prompt_logprobs", MAX_LOGPROBS),
    ("stop_token_ids", list(range(MAX_STOP_TOKEN_IDS))),
    ("repetition_penalty", 0.01),
    ("repetition_penalty", 100),
    ("presence_penalty", -2),
    ("presence_penalty", 2.0),
    ("frequency_penalty", -2.0),
    ("frequency_penalty", 2),
    ("logit_bias", {}),
    ("logit_bias", {0: -100, 5: 100.0}),
    ("logit_bias", {"7": 1}),
    ("logit_bias", [(3, 1.5)]),
    ("allowed_token_ids", None),
    ("allowed_token_ids", [0]),
    ("bad_words", "no"),
    ("bad_words", ["no"] * MAX_BAD_WORDS),
    ("min_tokens", 0),
    ("min_tokens", 16),
    ("n", 1),
    ("n", MAX_N),
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
    ("temperature", 10**400),
    ("temperature", -(10**400)),
    ("temperature", 10**5000),
    ("top_p", 10**400),
    ("min_p", 10**400),
    ("seed", 10**5000),
    ("max_tokens", 2**63),
    ("max_tokens", 10**5000),
    ("logprobs", 10**5000),
    ("top_k", -(10**5000)),
    ("stop_token_ids", [1] * (MAX_STOP_TOKEN_IDS + 1)),
    ("stop_token_ids", [-1]),
    ("stop_token_ids", ["1"]),
    ("stop_token_ids", 5),
    ("logprobs", -1),
    ("logprobs", True),
    ("logprobs", MAX_LOGPROBS + 1),
    ("prompt_logprobs", -1),
    ("prompt_logprobs", MAX_LOGPROBS + 1),
    ("prompt_logprobs", 1.0),
    ("stop_token_ids", list(range(MAX_STOP_TOKEN_IDS + 1))),
    ("repetition_penalty", 0),
    ("repetition_penalty", -1.0),
    ("repetition_penalty", 100.1),
    ("repetition_penalty", math.inf),
    ("presence_penalty", 2.001),
    ("presence_penalty", -2.001),
    ("presence_penalty", math.nan),
    ("frequency_penalty", 3),
    ("frequency_penalty", "1"),
    ("logit_bias", {-1: 0}),
    ("logit_bias", {"x": 0}),
    ("logit_bias", {"-1": 0}),
    ("logit_bias", {"9" * 5000: 0}),
    ("logit_bias", {True: 0}),
    ("logit_bias", {1.5: 0}),
    ("logit_bias", {1: 100.1}),
    ("logit_bias", {1: -100.1}),
    ("logit_bias", {1: math.nan}),
    ("logit_bias", {1: "2"}),
    ("logit_bias", 5),
    ("logit_bias", [3]),
    ("logit_bias", [(1, 2, 3)]),
    ("allowed_token_ids", []),
    ("allowed_token_ids", [-1]),
    ("allowed_token_ids", 3),
    ("bad_words", [""]),
    ("bad_words", [3]),
    ("bad_words", ["no"] * (MAX_BAD_WORDS + 1)),
    ("min_tokens", -1),
    ("min_tokens", 1.0),
    ("min_tokens", 17),
    ("min_tokens", 10**400),
    ("n", 0),
    ("n", MAX_N + 1),
    ("n", True),
    ("ignore_eos", 1),
    ("skip_special_tokens", "yes"),
    ("include_stop_str_in_output", None),
]


@pytest.mark.parametrize(("name", "value"), ALLOWED)
def test_values_at_the_edge_are_allowed(name: str, value: object) -> None:
    SamplingParams(**{name: value})


@pytest.mark.parametrize(("name", "value"), REFUSED, ids=[f"{place}-{case[0]}" for place, case in enumerate(REFUSED)])
def test_values_past_the_edge_are_refused_and_named(name: str, value: object) -> None:
    with pytest.raises(RequestError) as caught:
        SamplingParams(**{name: value})
    assert caught.value.param == name
    assert name in str(caught.value)


def test_a_minimum_needs_room_below_the_maximum() -> None:
    assert SamplingParams(min_tokens=17, max_tokens=None).min_tokens == 17
    with pytest.raises(RequestError, match="at most max_tokens, which is 3"):
        SamplingParams(min_tokens=4, max_tokens=3)
    with pytest.raises(RequestError, match="64-bit"):
        SamplingParams(min_tokens=2**63, max_tokens=None)


def test_equal_wishes_are_equal_values() -> None:
    assert SamplingParams(logit_bias={"7": 1, 2: 3}) == SamplingParams(logit_bias=[(2, 3.0), (7, 1.0)])
    assert SamplingParams(allowed_token_ids=[5, 1, 5]).allowed_token_ids == (1, 5)


@pytest.mark.parametrize(
    "wish",
    [
        {"repetition_penalty": 1.1},
        {"presence_penalty": 0.1},
        {"frequency_penalty": -0.1},
        {"logit_bias": {1: 0.0}},
        {"allowed_token_ids": [1]},
        {"bad_words": ["no"]},
        {"min_tokens": 1},
    ],
    ids=lambda wish: next(iter(wish)),
)
def test_greedy_requests_have_edits_too(wish: dict[str, object]) -> None:
    assert SamplingParams(temperature=0, **wish).has_edits
    assert not SamplingParams(temperature=0.5, top_k=3).has_edits
    assert SamplingParams(**wish).has_penalties == next(iter(wish)).endswith("_penalty")


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
    params = SamplingParams(logit_bias={3: -1.5}, allowed_token_ids=[4], bad_words=["a"], min_tokens=2, n=2)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(params), type=SamplingParams) == params


CHOICE = GrammarSpec.choice(["yes", "no"])


def test_a_constraint_is_a_value_of_its_own_class() -> None:
    assert SamplingParams(grammar=CHOICE).grammar == CHOICE
    assert SamplingParams().grammar is None
    for wrong in ({"type": "object"}, "a+", 3, True):
        with pytest.raises(RequestError, match="a class method of GrammarSpec") as caught:
            SamplingParams(grammar=wrong)
        assert caught.value.param == "grammar"


def test_a_constrained_text_needs_its_end() -> None:
    with pytest.raises(RequestError, match="structured output") as caught:
        SamplingParams(grammar=CHOICE, ignore_eos=True)
    assert caught.value.param == "ignore_eos"


def test_a_constraint_survives_the_wire() -> None:
    params = SamplingParams(grammar=GrammarSpec.json_schema({"type": "object"}), min_tokens=2)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(params), type=SamplingParams) == params


def test_a_choice_is_one_answer_and_keeps_everything_else() -> None:
    params = SamplingParams(n=4, grammar=CHOICE, top_k=7, seed=5, stop=["a"])
    choices = [params.for_choice(index) for index in range(4)]
    assert [choice.seed for choice in choices] == [5, 6, 7, 8]
    for choice in choices:
        assert msgspec.structs.replace(choice, n=4, seed=5) == params
        assert choice.n == 1
    assert choices[0] == msgspec.structs.replace(params, n=1)


def test_the_seeds_of_choices_stay_in_range_and_apart() -> None:
    last = 2**63 - 1
    seeds = [SamplingParams(n=3, seed=last - 1).for_choice(index).seed for index in range(3)]
    assert seeds == [last - 1, last, -(2**63)]
    assert [SamplingParams(n=2).for_choice(index).seed for index in range(2)] == [None, None]
