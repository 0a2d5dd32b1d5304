"""Bodies become requests, or errors that name the field, what it was given and what it means."""

from __future__ import annotations

import time

import pytest

from slipstream.base.errors import RequestError, UnsupportedFeature
from slipstream.server.protocol.endpoints import CHAT, COMPLETIONS
from slipstream.server.protocol.parse import (
    biases_of,
    completion_sampling,
    parse_fields,
    parse_json,
    parse_prompts,
    sampling_of,
    wants_running_usage,
    wants_usage,
)
from slipstream.server.protocol.requests import (
    MAX_ALLOWED_TOKEN_IDS,
    MAX_CHOICES,
    MAX_LOGIT_BIASES,
    CompletionRequest,
)
from slipstream.wire.grammar import GrammarSpec
from slipstream.wire.sampling_params import (
    MAX_BAD_WORDS,
    MAX_LOGPROBS,
    MAX_N,
    MAX_STOP_STRINGS,
    MAX_STOP_TOKEN_IDS,
    SamplingParams,
)
from support.http_world import USER

ROOM = {"max_prompts": 8, "max_prompt_tokens": 16}
BASES = {CHAT.path: {"messages": USER}, COMPLETIONS.path: {"prompt": "a"}}
EACH = pytest.mark.parametrize("endpoint", [CHAT, COMPLETIONS], ids=lambda endpoint: endpoint.path)


def read(endpoint, **fields):
    return parse_fields(endpoint, endpoint.accepts, BASES[endpoint.path] | fields)


def complete(**fields) -> CompletionRequest:
    return read(COMPLETIONS, **fields)


def sampled(**fields) -> SamplingParams:
    return completion_sampling(complete(**fields))


@EACH
def test_null_counts_as_absent(endpoint):
    names = [*endpoint.accepts.model_fields, *(f.name for f in (*endpoint.ignored, *endpoint.refused))]
    assert read(endpoint, **{name: None for name in names if name not in BASES[endpoint.path]}) == read(endpoint)


@EACH
def test_neutral_values_and_ignored_fields_pass(endpoint):
    ignored = {field.name: {"any": ["thing"]} for field in endpoint.ignored}
    neutral = {field.name: field.neutral[0] for field in endpoint.refused if field.neutral}
    assert read(endpoint, **ignored, **neutral) == read(endpoint)


@EACH
def test_every_refused_field_is_refused_with_its_reason(endpoint):
    for field in endpoint.refused:
        with pytest.raises(UnsupportedFeature) as caught:
            parse_fields(endpoint, endpoint.accepts, {field.name: {"x": [5]}})
        assert field.reason in str(caught.value)
        assert (caught.value.param, caught.value.code) == (field.name, "unsupported_feature")


def test_an_unknown_field_is_named_with_what_is_accepted():
    with pytest.raises(RequestError, match="temperature") as caught:
        complete(temprature=1)
    assert "temprature" in str(caught.value)
    assert (caught.value.param, caught.value.code) == ("temprature", "unknown_field")


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"temperature": "5"}, 'temperature="5" is not allowed'),
        ({"stop": ["a", 5]}, "stop"),
        ({"stop_token_ids": [1, "2"]}, r"stop_token_ids\[1\]="),
        ({"allowed_token_ids": [1, "2"]}, r"allowed_token_ids\[1\]="),
        ({"logit_bias": {"5": "x"}}, 'logit_bias="x"'),
        ({"n": 1.0}, "n=1.0"),
        ({"stream_options": []}, "stream_options="),
        ({"seed": "x" * 500}, "…"),
    ],
)
def test_a_wrong_value_is_shown_with_the_meaning_of_its_field(fields, says):
    with pytest.raises(RequestError, match=says) as caught:
        complete(**fields)
    (name,) = fields
    assert caught.value.param == name
    assert CompletionRequest.model_fields[name].description in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_missing_field_is_named():
    with pytest.raises(RequestError, match="prompt is missing") as caught:
        parse_fields(COMPLETIONS, CompletionRequest, {})
    assert caught.value.param == "prompt"


@pytest.mark.parametrize("body", [b"", b"[]", b"nul", b"\xff", b'{"a":NaN}', b'{"a":1e999}', b"[" * 99_999])
def test_what_is_no_object_is_refused(body):
    with pytest.raises(RequestError, match="body"):
        parse_json(body)


def test_an_object_is_read():
    assert parse_json(b'{"a": [1, 2.5, null, true]}') == {"a": [1, 2.5, None, True]}


FULL = {
    "temperature": 0.5,
    "top_k": 3,
    "top_p": 0.75,
    "min_p": 0.25,
    "seed": 7,
    "stop": ["a", "b"],
    "stop_token_ids": [4],
    "skip_special_tokens": False,
    "include_stop_str_in_output": True,
    "repetition_penalty": 1.5,
    "presence_penalty": -0.5,
    "frequency_penalty": 0.25,
    "logit_bias": {"7": 1, "3": -100},
    "allowed_token_ids": [3, 7],
    "bad_words": ["no"],
    "min_tokens": 2,
    "prompt_logprobs": 4,
    "n": 3,
}


@EACH
def test_every_parameter_is_taken_over(endpoint):
    sampling = sampling_of(read(endpoint, **FULL), max_tokens=9, logprobs=5)
    assert sampling == SamplingParams(**{**FULL, "logit_bias": {7: 1.0, 3: -100.0}}, max_tokens=9, logprobs=5)
    others = {"logit_bias": None} | dict.fromkeys(FULL)
    plain = sampling_of(read(endpoint, **others), max_tokens=9, logprobs=5)
    assert plain == SamplingParams(max_tokens=9, logprobs=5)
    assert sampling_of(read(endpoint, ignore_eos=True), max_tokens=None, logprobs=None).ignore_eos


@EACH
def test_a_constraint_is_taken_over(endpoint):
    request = read(endpoint, response_format={"type": "json_object"})
    assert sampling_of(request, max_tokens=9, logprobs=None).grammar == GrammarSpec.json_object()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"presence_penalty": 2.5}, "presence_penalty"),
        ({"frequency_penalty": -2.5}, "frequency_penalty"),
        ({"repetition_penalty": 10**400}, "repetition_penalty"),
        ({"logit_bias": {"5": 100.5}}, "logit_bias"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": {"-5": 1}}, "logit_bias"),
        ({"logit_bias": {"9" * 5000: 1}}, "logit_bias"),
        ({"logit_bias": {"5": 1, "05": 2}}, "logit_bias"),
        ({"allowed_token_ids": []}, "allowed_token_ids"),
        ({"allowed_token_ids": [-1]}, "allowed_token_ids"),
        ({"bad_words": [""]}, "bad_words"),
        ({"min_tokens": -1}, "min_tokens"),
        ({"min_tokens": 17}, "min_tokens"),
        ({"min_tokens": 10**400}, "min_tokens"),
        ({"logprobs": MAX_LOGPROBS + 1}, "logprobs"),
        ({"logprobs": MAX_LOGPROBS + 1, "echo": True}, "logprobs"),
        ({"logprobs": -1}, "logprobs"),
        ({"prompt_logprobs": MAX_LOGPROBS + 1}, "prompt_logprobs"),
        ({"prompt_logprobs": -1}, "prompt_logprobs"),
        ({"n": 0}, "n"),
        ({"n": MAX_N + 1}, "n"),
        ({"n": 10**400}, "n"),
        ({"best_of": 2}, "best_of"),
        ({"best_of": 1, "n": 2}, "best_of"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -1, "echo": True}, "max_tokens"),
        ({"max_tokens": 0, "echo": True, "min_tokens": 1}, "min_tokens"),
        ({"ignore_eos": True, "guided_regex": "a"}, "ignore_eos"),
    ],
)
def test_values_outside_their_range_are_refused_by_name(fields, param):
    with pytest.raises(RequestError) as caught:
        sampled(**fields)
    assert caught.value.param == param
    assert len(str(caught.value)) < 800


def test_best_of_is_neutral_when_it_is_n():
    assert sampled(best_of=3, n=3) == sampled(n=3)


def test_the_prompt_is_scored_when_its_echo_shows_logprobs():
    assert sampled(echo=True).prompt_logprobs is None
    assert sampled(echo=True, logprobs=3).prompt_logprobs == 3
    assert sampled(echo=True, logprobs=3, prompt_logprobs=5).prompt_logprobs == 5
    assert sampled(echo=True, logprobs=5, prompt_logprobs=3).prompt_logprobs == 5
    assert sampled(logprobs=3).prompt_logprobs is None


def test_no_token_at_all_is_one_that_nobody_sees():
    assert sampled(max_tokens=0, echo=True, logprobs=1).max_tokens == 1
    assert sampled(max_tokens=0, prompt_logprobs=1).max_tokens == 1


@EACH
def test_usage_of_a_stream(endpoint):
    def asked(**fields):
        return read(endpoint, **fields)

    assert wants_usage(asked()) is False
    assert wants_usage(asked(stream=True)) is False
    assert wants_usage(asked(stream=True, stream_options={})) is False
    both = {"include_usage": True, "include_obfuscation": True}
    assert wants_usage(asked(stream=True, stream_options=both)) is True
    with pytest.raises(RequestError, match="set stream to true"):
        wants_usage(asked(stream_options={}))


def test_usage_of_every_chunk():
    asked = complete(stream=True, stream_options={"continuous_usage_stats": True, "include_usage": True})
    assert wants_usage(asked) is True
    assert wants_running_usage(asked) is True
    assert wants_running_usage(complete(stream=True, stream_options={"include_usage": True})) is False
    assert wants_running_usage(complete()) is False
    with pytest.raises(RequestError, match="without include_usage"):
        wants_usage(complete(stream=True, stream_options={"continuous_usage_stats": True}))


@pytest.mark.parametrize(
    ("value", "prompts"),
    [("a", ["a"]), ([1], [[1]]), (["a", ""], ["a", ""]), ([[1], [2, 3]], [[1], [2, 3]]), ("", [""])],
)
def test_prompts(value, prompts):
    assert parse_prompts(value, **ROOM) == prompts


@pytest.mark.parametrize("value", [[], None, 5, {}, ["a", 1], [[1], "a"], [True], [[True]], [1.0]])
def test_other_prompts_are_refused(value):
    with pytest.raises(RequestError) as caught:
        parse_prompts(value, **ROOM)
    assert caught.value.param == "prompt"


class Unread:
    """An item that fails the test when it is looked at."""

    @property
    def __class__(self):
        raise AssertionError("an item was looked at before the items were counted")


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (["a"] + [Unread()] * 8, "9 prompts"),
        ([[1]] + [Unread()] * 8, "9 prompts"),
        ([1] + [Unread()] * 16, "17 token ids"),
        ([[1], [1] + [Unread()] * 16], "17 token ids"),
    ],
)
def test_what_is_too_many_is_counted_and_not_read(value, says):
    with pytest.raises(RequestError, match=says) as caught:
        parse_prompts(value, **ROOM)
    assert caught.value.param == "prompt"


def test_as_many_as_allowed_are_read():
    assert len(parse_prompts([[1] * 16] * 8, **ROOM)) == 8


LISTS = {
    "stop_token_ids": ([1], ["bad"], MAX_STOP_TOKEN_IDS),
    "stop": (["a"], [1], MAX_STOP_STRINGS),
    "allowed_token_ids": ([1], ["bad"], MAX_ALLOWED_TOKEN_IDS),
    "bad_words": (["a"], [1], MAX_BAD_WORDS),
    "guided_choice": (["a"], [1], MAX_CHOICES),
}


@pytest.mark.parametrize("is_bad", [False, True])
@pytest.mark.parametrize("name", LISTS)
def test_long_lists_are_refused_by_their_count(name, is_bad):
    """A bad item each would be an error each: a million of them took minutes."""
    limit = LISTS[name][2]
    with pytest.raises(RequestError, match=f"at most {limit} items") as caught:
        complete(**{name: LISTS[name][is_bad] * (limit + 1)})
    assert caught.value.param == name
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("name", LISTS)
def test_as_many_items_as_allowed_are_accepted(name):
    items, _, limit = LISTS[name]
    assert len(getattr(complete(**{name: items * limit}), name)) == limit


@pytest.mark.parametrize("value", [1, "bad"])
def test_a_logit_bias_is_refused_by_its_count(value):
    biases = {str(id_): value for id_ in range(1_000_000)}
    begin = time.process_time()
    with pytest.raises(RequestError, match=f"at most {MAX_LOGIT_BIASES} items") as caught:
        complete(logit_bias=biases)
    assert caught.value.param == "logit_bias"
    # An error for each of them would take more than ten times as long.
    assert time.process_time() - begin < 1
    allowed = {str(id_): 1 for id_ in range(MAX_LOGIT_BIASES)}
    assert len(biases_of(complete(logit_bias=allowed).logit_bias)) == MAX_LOGIT_BIASES


class Uncopied(list):
    """A list that fails the test when it is read as a whole."""

    def __iter__(self):
        raise AssertionError("the whole list was read to show a part of it")


@pytest.mark.parametrize("value", [Uncopied([1] * 1000), {"deep": Uncopied(["x"] * 1000)}])
def test_a_refused_value_is_shown_in_part_without_reading_all_of_it(value):
    with pytest.raises(RequestError, match="kv_transfer_params=") as caught:
        complete(kv_transfer_params=value)
    assert len(str(caught.value)) < 200
