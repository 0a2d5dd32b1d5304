"""Answers of /v1/responses: a stream puts together what a whole answer says, and numbers its events."""

from __future__ import annotations

import msgspec
import pytest
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from slipstream.base.errors import EngineError
from slipstream.frontend.answer_stream import AnswerDelta
from slipstream.server.protocol.response_api.input import ask_of
from slipstream.server.protocol.response_api.output import ResponseAnswer
from slipstream.server.protocol.response_api.requests import ResponseRequest
from slipstream.text.tools.parser import CallDelta
from support.answer_world import WEATHER, begun, counts, reasoning

ADAPTER = TypeAdapter(ResponseStreamEvent)
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
    "cut call": [AnswerDelta(calls=(begun(0, "f", '{"a":'),), finish_reason="length")],
}


def made(**fields):
    asked = ResponseRequest(input="hi", **fields)
    return ResponseAnswer(asked, ask_of(asked), "m", counts())


def play(deltas):
    """Return the whole answer, and its events, as plain JSON."""
    answer = made()
    events = [*answer.begin(), *(event for delta in deltas for event in answer.feed(delta))]
    return msgspec.to_builtins(answer.whole()), msgspec.to_builtins(events)


def assembled(events):
    """Return the items that a client puts together from deltas; every event is one that the openai package knows."""
    assert all(ADAPTER.validate_python(event).type == event["type"] for event in events)
    items, texts = {}, {}
    for event in events:
        place = event.get("output_index")
        if event["type"].endswith("item.added"):
            assert place == len(items)
            items[place], texts[place] = event["item"], ""
        elif event["type"].endswith(".delta"):
            assert event["item_id"] == items[place]["id"]
            texts[place] += event["delta"]
        elif event["type"].endswith("item.done"):
            done = event["item"]
            text = done["arguments"] if done["type"] == "function_call" else done["content"][0]["text"]
            assert text == texts[place]
            assert done["id"] == items[place]["id"]
            items[place] = done
    return list(items.values())


@pytest.mark.parametrize("name", ANSWERS)
def test_a_stream_assembles_to_the_whole_answer(name):
    whole, events = play(ANSWERS[name])
    assert assembled(events) == whole["output"]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    assert events[0]["response"]["status"] == "in_progress"
    assert (events[0]["response"]["output"], events[0]["response"]["usage"]) == ([], None)
    assert events[-1]["type"] == f"response.{whole['status']}"
    assert events[-1]["response"] == whole


def test_status_and_reason():
    whole, _ = play(ANSWERS["text"])
    assert (whole["status"], whole["incomplete_details"]) == ("completed", None)
    assert whole["completed_at"] >= whole["created_at"]
    whole, _ = play(ANSWERS["reasoning"])
    assert (whole["status"], whole["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert [item["status"] for item in whole["output"]] == ["completed", "incomplete"]
    assert whole["completed_at"] is None


def test_items():
    whole, _ = play(ANSWERS["calls"])
    message, first, second = whole["output"]
    assert message["content"] == [{"type": "output_text", "text": "Look.", "annotations": [], "logprobs": []}]
    assert [(i["call_id"], i["name"], i["arguments"], i["status"]) for i in (first, second)] == [
        ("call_0", "f", '{"a":1}', "completed"),
        ("call_1", "g", "{}", "completed"),
    ]
    assert len({item["id"] for item in whole["output"]}) == 3
    whole, _ = play(ANSWERS["cut call"])
    assert [(i["arguments"], i["status"]) for i in whole["output"]] == [('{"a":', "incomplete")]
    assert play(ANSWERS["nothing"])[0]["output"] == []


def test_a_call_that_a_stop_string_cut_is_incomplete():
    whole, _ = play([AnswerDelta(calls=(begun(0, "f", "{"),), finish_reason="stop", stop_reason="X")])
    assert [item["status"] for item in whole["output"]] == ["incomplete"]


def test_the_order_of_the_events_of_an_item():
    _, events = play(ANSWERS["reasoning"])
    assert [event["type"].removeprefix("response.") for event in events[2:9]] == [
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
    ]


def test_usage():
    usage = play(ANSWERS["reasoning"])[0]["usage"]
    assert usage == {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 17,
    }


def test_an_error_ends_the_answer_with_what_there_is():
    answer = made()
    answer.begin()
    answer.feed(AnswerDelta(content="Hel"))
    event = msgspec.to_builtins(answer.fail(EngineError("the engine died")))
    assert ADAPTER.validate_python(event).type == "response.failed"
    assert event["sequence_number"] == 5
    body = event["response"]
    assert (body["status"], body["error"]) == ("failed", {"code": "server_error", "message": "the engine died"})
    assert [(item["status"], item["content"][0]["text"]) for item in body["output"]] == [("incomplete", "Hel")]


def test_the_answer_repeats_what_was_asked():
    tool = {"type": "function", "name": "f", "description": "d", "parameters": WEATHER, "strict": True}
    body = msgspec.to_builtins(
        made(
            instructions="be brief",
            max_output_tokens=9,
            metadata={"a": "b"},
            reasoning={"effort": "low"},
            temperature=0.0,
            top_p=0.5,
            tools=[tool],
            tool_choice={"type": "function", "name": "f"},
            parallel_tool_calls=False,
        ).whole()
    )
    wanted = {
        "instructions": "be brief",
        "max_output_tokens": 9,
        "metadata": {"a": "b"},
        "reasoning": {"effort": "low", "summary": None},
        "temperature": 0.0,
        "top_p": 0.5,
        "tools": [tool],
        "tool_choice": {"type": "function", "name": "f"},
        "parallel_tool_calls": False,
        "text": {"format": {"type": "text"}},
        "model": "m",
    }
    assert body == body | wanted
    form = {"type": "json_schema", "name": "n", "schema": {}}
    assert made(text={"format": form}).whole().text == {"format": form}
    assert made().whole().tool_choice == "none"
