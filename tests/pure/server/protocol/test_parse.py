"""Bodies become requests, or errors that name the field, what it was given and what it means."""

from __future__ import annotations

import pytest

from slipstream.base.errors import RequestError, UnsupportedFeature
from slipstream.server.protocol.endpoints import CHAT, COMPLETIONS
from slipstream.server.protocol.parse import (
    chat_max_tokens,
    parse_fields,
    parse_json,
    parse_prompts,
    sampling_of,
    wants_usage,
)
from slipstream.server.protocol.requests import ChatRequest, CompletionRequest
from slipstream.wire.sampling_params import MAX_STOP_STRINGS, MAX_STOP_TOKEN_IDS
from support.http_world import USER

ROOM = {"max_prompts": 8, "max_prompt_tokens": 16}


def chat(**fields) -> ChatRequest:
    return parse_fields(CHAT, ChatRequest, {"messages": USER} | fields)


def test_null_counts_as_absent():
    names = [*ChatRequest.model_fields, *(f.name for f in (*CHAT.ignored, *CHAT.refused))]
    assert chat(**{name: None for name in names if name != "messages"}) == chat()


def test_neutral_values_and_ignored_fields_pass():
    ignored = {field.name: {"any": ["thing"]} for field in CHAT.ignored}
    neutral = {field.name: field.neutral[0] for field in CHAT.refused if field.neutral}
    assert chat(**ignored, **neutral) == chat()


@pytest.mark.parametrize("endpoint", [CHAT, COMPLETIONS], ids=lambda endpoint: endpoint.path)
def test_every_refused_field_is_refused_with_its_reason(endpoint):
    for field in endpoint.refused:
        with pytest.raises(UnsupportedFeature) as caught:
            parse_fields(endpoint, endpoint.accepts, {field.name: {"x": [5]}})
        assert field.reason in str(caught.value)
        assert (caught.value.param, caught.value.code) == (field.name, "unsupported_feature")


def test_an_unknown_field_is_named_with_what_is_accepted():
    with pytest.raises(RequestError, match="temperature") as caught:
        chat(temprature=1)
    assert "temprature" in str(caught.value)
    assert (caught.value.param, caught.value.code) == ("temprature", "unknown_field")


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"temperature": "5"}, 'temperature="5" is not allowed'),
        ({"stop": ["a", 5]}, "stop"),
        ({"stop_token_ids": [1, "2"]}, r"stop_token_ids\[1\]="),
        ({"stream_options": []}, "stream_options="),
        ({"seed": "x" * 500}, "…"),
    ],
)
def test_a_wrong_value_is_shown_with_the_meaning_of_its_field(fields, says):
    with pytest.raises(RequestError, match=says) as caught:
        chat(**fields)
    (name,) = fields
    assert caught.value.param == name
    assert ChatRequest.model_fields[name].description in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_missing_field_is_named():
    with pytest.raises(RequestError, match="prompt is missing") as caught:
        parse_fields(COMPLETIONS, CompletionRequest, {})
    assert caught.value.param == "prompt"


@pytest.mark.parametrize("body", [b"", b"[]", b"nul", b"\xff", b'{"a":NaN}', b"[" * 99_999])
def test_what_is_no_object_is_refused(body):
    with pytest.raises(RequestError, match="body"):
        parse_json(body)


def test_an_object_is_read():
    assert parse_json(b'{"a": [1, 2.5, null, true]}') == {"a": [1, 2.5, None, True]}


def test_sampling_parameters_are_taken_over():
    request = chat(stop=["a", "b"], top_k=3, temperature=0.5)
    sampling = sampling_of(request, max_tokens=None, logprobs=0)
    assert (sampling.stop, sampling.top_k, sampling.temperature) == (("a", "b"), 3, 0.5)
    assert (sampling.max_tokens, sampling.logprobs) == (None, 0)


def test_usage_of_a_stream():
    assert wants_usage(chat()) is False
    assert wants_usage(chat(stream=True)) is False
    assert wants_usage(chat(stream=True, stream_options={})) is False
    assert wants_usage(chat(stream=True, stream_options={"include_usage": True, "include_obfuscation": True})) is True
    with pytest.raises(RequestError, match="set stream to true"):
        wants_usage(chat(stream_options={}))
    with pytest.raises(UnsupportedFeature):
        wants_usage(chat(stream=True, stream_options={"continuous_usage_stats": True}))


def test_max_tokens_has_two_spellings():
    assert chat_max_tokens(chat()) is None
    assert chat_max_tokens(chat(max_tokens=4)) == chat_max_tokens(chat(max_completion_tokens=4)) == 4
    with pytest.raises(RequestError, match="give one"):
        chat_max_tokens(chat(max_tokens=4, max_completion_tokens=5))


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


@pytest.mark.parametrize(
    ("name", "items", "limit"),
    [
        ("stop_token_ids", [1], MAX_STOP_TOKEN_IDS),
        ("stop_token_ids", ["bad"], MAX_STOP_TOKEN_IDS),
        ("stop", ["a"], MAX_STOP_STRINGS),
        ("stop", [1], MAX_STOP_STRINGS),
    ],
)
def test_long_lists_are_refused_by_their_count(name, items, limit):
    """A bad item each would be an error each: a million of them took minutes."""
    with pytest.raises(RequestError, match=f"at most {limit} items") as caught:
        chat(**{name: items * (limit + 1)})
    assert caught.value.param == name
    assert len(str(caught.value)) < 400


def test_as_many_stops_as_allowed_are_accepted():
    asked = chat(stop=["a"] * MAX_STOP_STRINGS, stop_token_ids=[1] * MAX_STOP_TOKEN_IDS)
    assert len(asked.stop) == MAX_STOP_STRINGS
    assert len(asked.stop_token_ids) == MAX_STOP_TOKEN_IDS


class Uncopied(list):
    """A list that fails the test when it is read as a whole."""

    def __iter__(self):
        raise AssertionError("the whole list was read to show a part of it")


@pytest.mark.parametrize("value", [Uncopied([1] * 1000), {"deep": Uncopied(["x"] * 1000)}])
def test_a_refused_value_is_shown_in_part_without_reading_all_of_it(value):
    with pytest.raises(RequestError, match="tools=") as caught:
        chat(tools=value)
    assert len(str(caught.value)) < 200


def test_alternatives_are_refused_until_answers_show_them():
    with pytest.raises(UnsupportedFeature, match="logprobs=3") as caught:
        sampling_of(chat(), max_tokens=None, logprobs=3)
    assert caught.value.param == "logprobs"
