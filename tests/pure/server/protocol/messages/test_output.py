"""Answers in the shapes of the Messages API: a stream puts together what a whole message says."""

from __future__ import annotations

import copy
import json

import msgspec
import pytest
from anthropic.types import RawMessageStreamEvent
from pydantic import TypeAdapter

from slipstream.frontend.answer_stream import AnswerDelta
from slipstream.server.protocol.messages.output import MessageAnswer, messages_usage
from slipstream.text.tools.parser import CallDelta
from support.answer_world import begun, counts, reasoning

ADAPTER = TypeAdapter(RawMessageStreamEvent)


def play(deltas):
    """Return the whole message, and its events, as plain JSON."""
    answer = MessageAnswer("m", counts())
    events = [event for delta in deltas for event in answer.feed(delta)]
    return msgspec.to_builtins(answer.whole()), msgspec.to_builtins(events)


def assembled(events):
    """Return the message that a client puts together; every event is one that the anthropic package knows."""
    assert all(ADAPTER.validate_python(event, strict=True).type == event["type"] for event in events)
    message = copy.deepcopy(events[0]["message"])
    arguments = {}
    for event in events[1:]:
        if event["type"] == "content_block_start":
            assert event["index"] == len(message["content"])
            message["content"].append(dict(event["content_block"]))
        elif event["type"] == "content_block_delta":
            block, delta = message["content"][event["index"]], dict(event["delta"])
            kind = delta.pop("type")
            if kind == "input_json_delta":
                arguments[event["index"]] = arguments.get(event["index"], "") + delta["partial_json"]
            for field in set(delta) - {"partial_json"}:
                block[field] += delta[field]
        elif event["type"] == "message_delta":
            message |= event["delta"] | {"usage": event["usage"]}
    for index, text in arguments.items():
        message["content"][index]["input"] = json.loads(text)
    return message


ANSWERS = {
    "text": [AnswerDelta(content="Hel"), AnswerDelta(content="lo", finish_reason="stop")],
    "reasoning": [
        reasoning("Let me "),
        reasoning("see"),
        AnswerDelta(content="Yes"),
        AnswerDelta(finish_reason="length"),
    ],
    "calls": [
        AnswerDelta(content="Look."),
        AnswerDelta(calls=(begun(0, "f", '{"a":'),)),
        AnswerDelta(calls=(CallDelta(0, "1}"), begun(1, "g", "{}")), finish_reason="tool_calls"),
    ],
    "nothing": [AnswerDelta(finish_reason="stop")],
    "stop": [AnswerDelta(content="ab", finish_reason="stop", stop_reason="X")],
    "stop token": [AnswerDelta(content="ab", finish_reason="stop", stop_reason=17)],
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_stream_assembles_to_the_whole_message(name):
    whole, events = play(ANSWERS[name])
    assert assembled(events) == whole
    assert [event["type"] for event in events[:1] + events[-2:]] == ["message_start", "message_delta", "message_stop"]
    assert events[0]["message"]["content"] == []
    assert events[0]["message"]["stop_reason"] is None
    assert events[-2]["usage"] == whole["usage"]


@pytest.mark.parametrize(
    ("name", "stop_reason", "stop_sequence"),
    [
        ("text", "end_turn", None),
        ("reasoning", "max_tokens", None),
        ("calls", "tool_use", None),
        ("nothing", "end_turn", None),
        ("stop", "stop_sequence", "X"),
        ("stop token", "end_turn", None),
    ],
)
def test_how_an_answer_ends(name, stop_reason, stop_sequence):
    whole, _ = play(ANSWERS[name])
    assert (whole["stop_reason"], whole["stop_sequence"]) == (stop_reason, stop_sequence)


def test_blocks():
    assert play(ANSWERS["nothing"])[0]["content"] == []
    assert play(ANSWERS["reasoning"])[0]["content"] == [
        {"type": "thinking", "thinking": "Let me see", "signature": "unsigned"},
        {"type": "text", "text": "Yes", "citations": None},
    ]
    assert play(ANSWERS["calls"])[0]["content"][1:] == [
        {"type": "tool_use", "id": "call_0", "name": "f", "input": {"a": 1}},
        {"type": "tool_use", "id": "call_1", "name": "g", "input": {}},
    ]


def test_reasoning_is_signed_at_its_end():
    _, events = play(ANSWERS["reasoning"])
    deltas = [event["delta"]["type"] for event in events if event["type"] == "content_block_delta"]
    assert deltas == ["thinking_delta", "thinking_delta", "signature_delta", "text_delta"]


def test_a_call_that_was_cut_off_is_not_in_the_message():
    whole, events = play([AnswerDelta(calls=(begun(0, "f", "{}"), begun(1, "g", '{"a": "b')), finish_reason="length")])
    assert [block["id"] for block in whole["content"]] == ["call_0"]
    assert whole["stop_reason"] == "max_tokens"
    assert [event["index"] for event in events if event["type"] == "content_block_stop"] == [0, 1]


def test_the_prompt_is_counted_once():
    usage = messages_usage(counts(num_prompt=10, num_hits=4, num_generated=7))
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (6, 4, 7)
    assert usage.cache_creation_input_tokens == 0
