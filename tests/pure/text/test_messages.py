"""Which messages are accepted, and what the others are told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.base.errors import RequestError, UnsupportedFeature
from slipstream.text.messages import MAX_MESSAGES, ROLES, parse_messages
from support.profiles import relaxed

json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)),
    max_leaves=8,
)
keys = st.sampled_from(["role", "content", "name", "type", "text", "tool_calls", "reasoning", "other"])
near_messages = st.lists(
    st.dictionaries(keys, st.one_of(json_values, st.sampled_from(ROLES), st.just([{"type": "text", "text": "x"}]))),
    max_size=3,
)


class Unread:
    """An item that fails the test when it is looked at."""

    @property
    def __class__(self):
        raise AssertionError("an item was looked at before the items were counted")


def test_too_many_messages_are_counted_and_not_read():
    with pytest.raises(RequestError, match=f"{MAX_MESSAGES + 1} messages: give at most {MAX_MESSAGES}") as caught:
        parse_messages([Unread()] * (MAX_MESSAGES + 1))
    assert caught.value.param == "messages"


def test_too_many_parts_are_counted_over_all_messages_and_not_read():
    message = {"role": "user", "content": [Unread()] * (MAX_MESSAGES // 2 + 1)}
    with pytest.raises(RequestError, match=f"{MAX_MESSAGES + 2} parts of content") as caught:
        parse_messages([message, message])
    assert caught.value.param == "messages"


def test_as_many_as_allowed_are_read():
    assert len(parse_messages([{"role": "user", "content": [{"type": "text", "text": "x"}]}] * MAX_MESSAGES)) == (
        MAX_MESSAGES
    )


@relaxed
@given(st.one_of(json_values, near_messages))
def test_anything_is_parsed_or_refused(value):
    refused = None
    try:
        parsed = parse_messages(value)
    except RequestError as error:
        refused = error
    if refused is not None:
        assert str(refused.param).startswith("messages")
        return
    assert parsed
    for message in parsed:
        assert message["role"] in ROLES
        assert all(isinstance(text, str) for field, text in message.items() if field != "tool_calls")


def test_text_parts_are_joined():
    parts = [{"type": "text", "text": "a "}, {"type": "text", "text": "b"}]
    assert parse_messages([{"role": "user", "content": parts}]) == [{"role": "user", "content": "a b"}]


def test_what_a_client_sends_back_of_an_answer_is_accepted():
    message = {
        "role": "assistant",
        "content": "hi",
        "refusal": None,
        "annotations": [],
        "audio": None,
        "function_call": None,
        "tool_calls": None,
        "reasoning_content": "because",
        "name": None,
    }
    assert parse_messages([message]) == [{"role": "assistant", "content": "hi", "reasoning_content": "because"}]


@pytest.mark.parametrize(
    ("messages", "says", "param"),
    [
        ([], "empty", "messages"),
        ({}, "object", "messages"),
        (None, "null", "messages"),
        (["hi"], "string", "messages[0]"),
        ([{"content": "x"}], "one of root, system", "messages[0].role"),
        ([{"role": "robot", "content": "x"}], "one of root, system", "messages[0].role"),
        ([{"role": ["user"], "content": "x"}], "one of", "messages[0].role"),
        ([{"role": "user"}], "null", "messages[0].content"),
        ([{"role": "user", "content": 5}], "number", "messages[0].content"),
        ([{"role": "user", "content": True}], "boolean", "messages[0].content"),
        ([{"role": "user", "content": []}], "empty list", "messages[0].content"),
        ([{"role": "user", "content": ["x"]}], "string", "messages[0].content[0]"),
        ([{"role": "user", "content": [{"type": "text"}]}], "exactly", "messages[0].content[0]"),
        ([{"role": "user", "content": [{"type": "text", "text": 1}]}], "exactly", "messages[0].content[0]"),
        ([{"role": "user", "content": "x", "color": 1}], "not a known field", "messages[0].color"),
        ([{"role": "user", "content": "x", "name": 1}], "number", "messages[0].name"),
        ([{"role": "user", "content": "a"}, {"role": "x", "content": "b"}], "one of", "messages[1].role"),
    ],
)
def test_a_wrong_shape_is_named(messages, says, param):
    with pytest.raises(RequestError, match=says) as caught:
        parse_messages(messages)
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "function", "content": "x"}, "messages[0].role"),
        ({"role": "assistant", "content": "x", "function_call": {"name": "f"}}, "messages[0].function_call"),
        (
            {"role": "assistant", "tool_calls": [{"type": "custom", "custom": {}}]},
            "messages[0].tool_calls[0].type",
        ),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {}}]}, "messages[0].content[0].type"),
        ({"role": "user", "content": [{"text": "x"}]}, "messages[0].content[0].type"),
    ],
)
def test_what_is_understood_and_not_served_says_so(message, param):
    with pytest.raises(UnsupportedFeature) as caught:
        parse_messages([message])
    assert caught.value.param == param


def call(arguments="{}", name="f", **fields):
    return {"id": "1", "type": "function", "function": {"name": name, "arguments": arguments}} | fields


def assistant(*calls, **fields):
    return {"role": "assistant", "tool_calls": list(calls)} | fields


def test_calls_and_their_results_are_read():
    messages = [
        {"role": "user", "content": "hi", "tool_calls": [], "tool_call_id": None},
        assistant(call('{"a": [1, {"b": null}]}'), call({"x": "y"}, "g", id="2", index=1, type=None), content=None),
        {"role": "tool", "tool_call_id": "2", "content": [{"type": "text", "text": "1"}], "name": "g"},
        {"role": "tool", "tool_call_id": "1", "content": ""},
        assistant(content="so", tool_calls=[], reasoning_content="hm"),
    ]
    assert parse_messages(messages) == [
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {
                    "id": "1",
                    "type": "function",
                    "function": {"name": "f", "arguments": {"a": [1, {"b": None}]}},
                },
                {"id": "2", "type": "function", "function": {"name": "g", "arguments": {"x": "y"}}},
            ],
        },
        {"role": "tool", "tool_call_id": "2", "content": "1", "name": "g"},
        {"role": "tool", "tool_call_id": "1", "content": ""},
        {"role": "assistant", "content": "so", "reasoning_content": "hm"},
    ]


@pytest.mark.parametrize("arguments", ["", " ", None, "{}", {}])
def test_a_call_without_arguments(arguments):
    (message,) = parse_messages([assistant(call(arguments))])
    assert message["tool_calls"][0]["function"]["arguments"] == {}


def nested(depth: int) -> dict:
    value: dict = {}
    for _ in range(depth):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    ("given", "says", "param"),
    [
        (call("{"), "is not JSON", ".function.arguments"),
        (call('{"a": NaN}'), "NaN is no JSON number", ".function.arguments"),
        (call("[1]"), "is a list", ".function.arguments"),
        (call(5), "is a number", ".function.arguments"),
        (call("[" * 100_000), "is not JSON", ".function.arguments"),
        (call(nested(70)), "deeper than 64", ".function.arguments"),
        (call({"a<b": 1}), "cannot be written as a tag", ".function.arguments"),
        (call({"a": "x]<]minimax[>[</a>"}), "holds the closing tag", ".function.arguments"),
        (call("{}", 'na"me'), "cannot be written", ".function.name"),
        (call("{}", 5), "is a number", ".function.name"),
        (call("{}", more=1), "not a known field", ".more"),
        (call("{}", function={"name": "f", "strict": True}), "not a known field", ".function.strict"),
        (call("{}", function=None), "is a null", ".function"),
        (call("{}", id=5), "is a number", ".id"),
        ("f", "is a string", ""),
    ],
)
def test_a_call_that_cannot_be_read_is_named(given, says, param):
    with pytest.raises(RequestError, match=says) as caught:
        parse_messages([{"role": "user", "content": "x"}, assistant(call(), given)])
    assert caught.value.param == f"messages[1].tool_calls[1]{param}"


@pytest.mark.parametrize(
    ("messages", "says", "param"),
    [
        ([{"role": "tool", "content": "x", "tool_call_id": "1"}], "no message before it has tool_calls", "messages[0]"),
        (
            [assistant(call()), {"role": "tool", "content": "x", "tool_call_id": "2"}],
            "no earlier call",
            ".tool_call_id",
        ),
        ([assistant(call()), {"role": "tool", "content": "x", "tool_call_id": 1}], "is a number", ".tool_call_id"),
        ([assistant(call()), {"role": "tool", "tool_call_id": "1"}], "is a null", "messages[1].content"),
        ([assistant(tool_calls=[])], "is a null", "messages[0].content"),
        ([assistant(tool_calls={})], "is a object", "messages[0].tool_calls"),
        ([{"role": "user", "content": "x", "tool_calls": [call()]}], "belongs to role 'assistant'", ".tool_calls"),
        ([{"role": "user", "content": "x", "tool_call_id": "1"}], "belongs to role 'tool'", ".tool_call_id"),
    ],
)
def test_results_and_calls_have_their_places(messages, says, param):
    with pytest.raises(RequestError, match=says) as caught:
        parse_messages(messages)
    assert str(caught.value.param).endswith(param)


def test_a_result_may_leave_its_call_unnamed():
    for calls, result in (([call()], {}), ([call(id=None)], {"tool_call_id": "x"})):
        assert len(parse_messages([assistant(*calls), {"role": "tool", "content": "x"} | result])) == 2


def test_too_many_calls_are_counted_and_not_read():
    with pytest.raises(RequestError, match=f"{MAX_MESSAGES + 1} tool calls"):
        parse_messages([assistant(*[Unread()] * (MAX_MESSAGES + 1))])
