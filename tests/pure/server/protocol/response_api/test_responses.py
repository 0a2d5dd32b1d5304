"""Every shape of /v1/responses is one that the openai package knows."""

from __future__ import annotations

import msgspec
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from slipstream.server.protocol.response_api import responses as shapes

ITEMS = [
    shapes.ReasoningItem(id="rs", status="completed", content=[shapes.ReasoningText(text="t")]),
    shapes.MessageItem(id="msg", status="completed", content=[shapes.OutputText(text="x")]),
    shapes.FunctionCallItem(id="fc", status="incomplete", call_id="c", name="f", arguments="{"),
]
BODY = shapes.ResponseBody(
    id="resp",
    created_at=1,
    model="m",
    instructions="be brief",
    max_output_tokens=5,
    metadata={"a": "b"},
    parallel_tool_calls=True,
    reasoning=shapes.ResponseReasoning(effort="high"),
    temperature=0.5,
    text={"format": {"type": "text"}},
    tool_choice={"type": "function", "name": "f"},
    tools=[shapes.FunctionTool(name="f", description=None, parameters={}, strict=False)],
    top_p=1.0,
    status="incomplete",
    output=ITEMS,
    usage=shapes.ResponseUsage(
        input_tokens=1,
        input_tokens_details=shapes.InputTokensDetails(cached_tokens=1),
        output_tokens=2,
        output_tokens_details=shapes.OutputTokensDetails(reasoning_tokens=1),
        total_tokens=3,
    ),
    incomplete_details=shapes.IncompleteDetails(reason="max_output_tokens"),
    error=shapes.ResponseError(code="server_error", message="gone"),
)
WHERE = {"sequence_number": 4, "item_id": "i", "output_index": 0}
EVENTS = [
    *(
        kind(sequence_number=4, response=BODY)
        for kind in (
            shapes.ResponseCreated,
            shapes.ResponseInProgress,
            shapes.ResponseCompleted,
            shapes.ResponseIncomplete,
            shapes.ResponseFailed,
        )
    ),
    *(kind(sequence_number=4, output_index=0, item=i) for i in ITEMS for kind in (shapes.ItemAdded, shapes.ItemDone)),
    *(
        kind(**WHERE, part=part)
        for part in (shapes.OutputText(text=""), shapes.ReasoningText(text="x"))
        for kind in (shapes.PartAdded, shapes.PartDone)
    ),
    shapes.OutputTextDelta(**WHERE, delta="x"),
    shapes.OutputTextDone(**WHERE, text="x"),
    shapes.ReasoningTextDelta(**WHERE, delta="x"),
    shapes.ReasoningTextDone(**WHERE, text="x"),
    shapes.ArgumentsDelta(**WHERE, delta="{"),
    shapes.ArgumentsDone(**WHERE, name="f", arguments="{}"),
]


def plain(message):
    return msgspec.json.decode(msgspec.json.encode(message))


def test_the_answer():
    known = Response.model_validate(plain(BODY))
    assert known.output_text == "x"
    assert [item.type for item in known.output] == ["reasoning", "message", "function_call"]
    assert known.to_dict() == known.to_dict() | plain(BODY)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__struct_config__.tag)
def test_every_event(event):
    known = TypeAdapter(ResponseStreamEvent).validate_python(plain(event))
    assert known.type == event.__struct_config__.tag
    assert known.to_dict() == known.to_dict() | plain(event)
    assert msgspec.json.decode(msgspec.json.encode(event), type=shapes.ResponseEvent) == event


def test_no_event_is_missing_here():
    assert {type(event) for event in EVENTS} == set(shapes.ResponseEvent.__args__)
