"""The answer to a Responses API request: as one object, or as numbered events while it comes."""

from __future__ import annotations

import itertools
import time
import uuid
from typing import Any

import msgspec

from slipstream.base.errors import RequestError, SlipstreamError
from slipstream.frontend.answer_stream import AnswerDelta
from slipstream.frontend.chat import ChatAsk
from slipstream.frontend.stream import RequestStream
from slipstream.server.protocol.answer_parts import AnswerParts, Part, PartEvent
from slipstream.server.protocol.response_api.input import effort_of
from slipstream.server.protocol.response_api.requests import ResponseRequest
from slipstream.server.protocol.response_api.responses import (
    ArgumentsDelta,
    ArgumentsDone,
    FunctionCallItem,
    FunctionTool,
    IncompleteDetails,
    InputTokensDetails,
    Item,
    ItemAdded,
    ItemDone,
    ItemStatus,
    MessageItem,
    OutputText,
    OutputTextDelta,
    OutputTextDone,
    OutputTokensDetails,
    PartAdded,
    PartDone,
    ReasoningItem,
    ReasoningText,
    ReasoningTextDelta,
    ReasoningTextDone,
    ResponseBody,
    ResponseCompleted,
    ResponseCreated,
    ResponseError,
    ResponseEvent,
    ResponseFailed,
    ResponseIncomplete,
    ResponseInProgress,
    ResponseReasoning,
    ResponseUsage,
)

_PREFIXES = {"reasoning": "rs", "text": "msg", "call": "fc"}


class ResponseAnswer:
    """Take the deltas of one answer.

    Args:
        asked: the request, which the answer repeats.
        ask: its conversation.
        model: the served model's name.
        stream: the engine's request, whose counts are the usage.
    """

    def __init__(self, asked: ResponseRequest, ask: ChatAsk, model: str, stream: RequestStream) -> None:
        self._id = uuid.uuid4().hex
        self._body = _body(asked, ask, model, f"resp_{self._id}")
        self._stream = stream
        self._answer = AnswerParts()
        self._numbers = itertools.count()

    def begin(self) -> list[ResponseEvent]:
        """Return the first events."""
        return [
            ResponseCreated(sequence_number=next(self._numbers), response=self._body),
            ResponseInProgress(sequence_number=next(self._numbers), response=self._body),
        ]

    def feed(self, delta: AnswerDelta) -> list[ResponseEvent]:
        """Take the next delta and return its events; the last delta ends the answer."""
        is_cut = delta.finish_reason == "length"
        events: list[ResponseEvent] = []
        part_events = self._answer.feed(delta)
        for event in part_events:
            is_last = event.part.index == len(self._answer.parts) - 1
            events += self._part_events(event, "incomplete" if is_cut and is_last else "completed")
        if delta.finish_reason is not None:
            self._body = self._finished(is_cut)
            last = ResponseIncomplete if is_cut else ResponseCompleted
            events.append(last(sequence_number=next(self._numbers), response=self._body))
        return events

    def fail(self, error: SlipstreamError) -> ResponseEvent:
        """Return the last event of an answer that an error ended."""
        code = error.code if isinstance(error, RequestError) else None
        told = ResponseError(code=code or "server_error", message=str(error))
        body = msgspec.structs.replace(
            self._body, status="failed", error=told, output=self._items("incomplete"), usage=self._usage()
        )
        return ResponseFailed(sequence_number=next(self._numbers), response=body)

    def whole(self) -> ResponseBody:
        """Return the answer, once the last delta was fed."""
        return self._body

    def _finished(self, is_cut: bool) -> ResponseBody:
        return msgspec.structs.replace(
            self._body,
            status="incomplete" if is_cut else "completed",
            output=self._items("incomplete" if is_cut else "completed"),
            usage=self._usage(),
            incomplete_details=IncompleteDetails(reason="max_output_tokens") if is_cut else None,
            completed_at=None if is_cut else int(time.time()),
        )

    def _items(self, last: ItemStatus) -> list[Item]:
        """Return every item that has begun.

        Args:
            last: status of the last one.
        """
        parts = self._answer.parts
        return [self._item(part, last if part is parts[-1] else "completed") for part in parts]

    def _usage(self) -> ResponseUsage:
        num_prompt_tokens, num_tokens = len(self._stream.request.prompt_token_ids), self._stream.num_generated_tokens
        return ResponseUsage(
            input_tokens=num_prompt_tokens,
            input_tokens_details=InputTokensDetails(cached_tokens=self._stream.num_prefix_hit_tokens),
            output_tokens=num_tokens,
            output_tokens_details=OutputTokensDetails(
                reasoning_tokens=min(self._answer.num_reasoning_tokens, num_tokens)
            ),
            total_tokens=num_prompt_tokens + num_tokens,
        )

    def _item_id(self, part: Part) -> str:
        return f"{_PREFIXES[part.kind]}_{self._id}_{part.index}"

    def _item(self, part: Part, status: ItemStatus) -> Item:
        id_, is_new = self._item_id(part), status == "in_progress"
        if part.kind == "reasoning":
            content = [] if is_new else [ReasoningText(text=part.text)]
            return ReasoningItem(id=id_, status=status, content=content)
        if part.kind == "text":
            return MessageItem(id=id_, status=status, content=[] if is_new else [OutputText(text=part.text)])
        # A call can be cut by a stop string too.
        status = "incomplete" if part.is_cut and not is_new else status
        arguments = "" if is_new else part.text
        return FunctionCallItem(id=id_, status=status, call_id=part.call_id, name=part.name, arguments=arguments)

    def _part_events(self, event: PartEvent, status: ItemStatus) -> list[ResponseEvent]:
        part, where = event.part, self._where(event.part)
        if event.what == "begin":
            item = self._item(part, "in_progress")
            added = ItemAdded(sequence_number=next(self._numbers), output_index=part.index, item=item)
            return [added] if part.kind == "call" else [added, PartAdded(**self._next(where), part=_part(part, ""))]
        if event.what == "more":
            kind = {"reasoning": ReasoningTextDelta, "text": OutputTextDelta, "call": ArgumentsDelta}[part.kind]
            return [kind(**self._next(where), delta=event.text)]
        done: list[ResponseEvent] = []
        if part.kind == "call":
            done.append(ArgumentsDone(**self._next(where), name=part.name, arguments=part.text))
        else:
            kind = ReasoningTextDone if part.kind == "reasoning" else OutputTextDone
            done.append(kind(**self._next(where), text=part.text))
            done.append(PartDone(**self._next(where), part=_part(part, part.text)))
        item = self._item(part, status)
        return [*done, ItemDone(sequence_number=next(self._numbers), output_index=part.index, item=item)]

    def _where(self, part: Part) -> dict[str, Any]:
        return {"item_id": self._item_id(part), "output_index": part.index}

    def _next(self, where: dict[str, Any]) -> dict[str, Any]:
        return {"sequence_number": next(self._numbers), **where}


def _part(part: Part, text: str) -> OutputText | ReasoningText:
    return ReasoningText(text=text) if part.kind == "reasoning" else OutputText(text=text)


def _body(asked: ResponseRequest, ask: ChatAsk, model: str, id_: str) -> ResponseBody:
    choice = ask.tool_choice
    named = {"type": "function", "name": choice.name or ""}
    form = (asked.text or {}).get("format") or {"type": "text"}
    return ResponseBody(
        id=id_,
        created_at=int(time.time()),
        model=model,
        instructions=asked.instructions,
        max_output_tokens=asked.max_output_tokens,
        metadata=asked.metadata,
        parallel_tool_calls=asked.parallel_tool_calls,
        reasoning=ResponseReasoning(effort=effort_of(asked.reasoning)),
        temperature=asked.temperature,
        text={"format": form},
        tool_choice=named if choice.mode == "named" else choice.mode,
        tools=[
            FunctionTool(
                name=tool.name, description=tool.description, parameters=tool.parameters, strict=tool.is_strict
            )
            for tool in ask.tools.tools
        ],
        top_p=asked.top_p,
    )
