"""The answer to a conversation in the shapes of the Messages API: as one message, or as events while it comes.

A call that the answer's end cut off is left out of a whole message, because its input is not JSON; a stream has sent
its beginning by then. Either way the stop reason says that the answer was cut.
"""

from __future__ import annotations

import uuid

import msgspec

from slipstream.frontend.answer_stream import AnswerDelta
from slipstream.frontend.stream import RequestStream
from slipstream.server.protocol.answer_parts import AnswerParts, Part, PartEvent
from slipstream.server.protocol.messages.responses import (
    UNSIGNED,
    Block,
    BlockDelta,
    BlockStart,
    BlockStop,
    InputJsonDelta,
    Message,
    MessageDelta,
    MessageEnd,
    MessagesEvent,
    MessageStart,
    MessageStop,
    MessagesUsage,
    SignatureDelta,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    ToolUseBlock,
)

_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


def messages_usage(stream: RequestStream) -> MessagesUsage:
    """Return the usage of a request so far."""
    num_hits = stream.num_prefix_hit_tokens
    return MessagesUsage(
        input_tokens=len(stream.request.prompt_token_ids) - num_hits,
        cache_read_input_tokens=num_hits,
        output_tokens=stream.num_generated_tokens,
    )


class MessageAnswer:
    """Take the deltas of one answer.

    Args:
        model: the served model's name.
        stream: the request, whose counts are the usage.
    """

    def __init__(self, model: str, stream: RequestStream) -> None:
        self._id = f"msg_{uuid.uuid4().hex}"
        self._model = model
        self._stream = stream
        self._answer = AnswerParts()
        self._has_begun = False
        self._end = MessageEnd(stop_reason=None, stop_sequence=None)

    def feed(self, delta: AnswerDelta) -> list[MessagesEvent]:
        """Take the next delta and return its events; the first delta begins the message and the last one ends it.

        The message begins no earlier, because only then it is known how much of the prompt was found in the cache.
        """
        events: list[MessagesEvent] = []
        if not self._has_begun:
            self._has_begun = True
            events.append(MessageStart(message=self._message([])))
        for event in self._answer.feed(delta):
            events += _block_events(event)
        if delta.finish_reason is not None:
            self._end = _end_of(delta)
            events += [MessageDelta(delta=self._end, usage=messages_usage(self._stream)), MessageStop()]
        return events

    def whole(self) -> Message:
        """Return the message, once the last delta was fed."""
        return self._message([_block(part) for part in self._answer.parts if not part.is_cut])

    def _message(self, content: list[Block]) -> Message:
        return Message(
            id=self._id,
            model=self._model,
            content=content,
            stop_reason=self._end.stop_reason,
            stop_sequence=self._end.stop_sequence,
            usage=messages_usage(self._stream),
        )


def _end_of(delta: AnswerDelta) -> MessageEnd:
    if delta.finish_reason == "stop" and isinstance(delta.stop_reason, str):
        return MessageEnd(stop_reason="stop_sequence", stop_sequence=delta.stop_reason)
    return MessageEnd(stop_reason=_STOP_REASONS[str(delta.finish_reason)], stop_sequence=None)


def _block(part: Part) -> Block:
    if part.kind == "reasoning":
        return ThinkingBlock(thinking=part.text, signature=UNSIGNED)
    if part.kind == "text":
        return TextBlock(text=part.text)
    return ToolUseBlock(id=part.call_id, name=part.name, input=msgspec.json.decode(part.text))


def _empty_block(part: Part) -> Block:
    if part.kind == "reasoning":
        return ThinkingBlock(thinking="", signature="")
    if part.kind == "text":
        return TextBlock(text="")
    return ToolUseBlock(id=part.call_id, name=part.name, input={})


def _block_events(event: PartEvent) -> list[MessagesEvent]:
    part = event.part
    if event.what == "begin":
        return [BlockStart(index=part.index, content_block=_empty_block(part))]
    if event.what == "more":
        return [BlockDelta(index=part.index, delta=_growth(part, event.text))]
    stop = BlockStop(index=part.index)
    if part.kind == "reasoning":
        return [BlockDelta(index=part.index, delta=SignatureDelta(signature=UNSIGNED)), stop]
    return [stop]


def _growth(part: Part, text: str) -> TextDelta | ThinkingDelta | InputJsonDelta:
    if part.kind == "reasoning":
        return ThinkingDelta(thinking=text)
    return TextDelta(text=text) if part.kind == "text" else InputJsonDelta(partial_json=text)
