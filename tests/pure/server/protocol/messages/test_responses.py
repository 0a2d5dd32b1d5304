"""Every shape of the Messages API is one that the anthropic package knows."""

from __future__ import annotations

import msgspec
from anthropic.types import ContentBlock, MessageTokensCount, RawMessageStreamEvent
from anthropic.types import Message as ClientMessage
from pydantic import TypeAdapter

from slipstream.server.protocol.messages.responses import (
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
    TokenCount,
    ToolUseBlock,
)

BLOCKS = [
    TextBlock(text="a"),
    ThinkingBlock(thinking="b", signature="c"),
    ToolUseBlock(id="d", name="e", input={"f": [1]}),
]
USAGE = MessagesUsage(input_tokens=1, output_tokens=2, cache_read_input_tokens=3)
MESSAGE = Message(id="i", model="m", content=BLOCKS, stop_reason="end_turn", stop_sequence=None, usage=USAGE)
EVENTS = [
    MessageStart(message=MESSAGE),
    *(BlockStart(index=0, content_block=block) for block in BLOCKS),
    BlockDelta(index=0, delta=TextDelta(text="x")),
    BlockDelta(index=1, delta=ThinkingDelta(thinking="x")),
    BlockDelta(index=1, delta=SignatureDelta(signature="x")),
    BlockDelta(index=2, delta=InputJsonDelta(partial_json="{")),
    BlockStop(index=0),
    MessageDelta(delta=MessageEnd(stop_reason="stop_sequence", stop_sequence="S"), usage=USAGE),
    MessageStop(),
]


def plain(message):
    return msgspec.json.decode(msgspec.json.encode(message))


def test_messages_and_blocks():
    known = ClientMessage.model_validate(plain(MESSAGE), strict=True)
    assert known.usage.input_tokens + known.usage.cache_read_input_tokens == 4
    assert [block.type for block in known.content] == ["text", "thinking", "tool_use"]
    for block in BLOCKS:
        TypeAdapter(ContentBlock).validate_python(plain(block), strict=True)
    assert MessageTokensCount.model_validate(plain(TokenCount(7)), strict=True).input_tokens == 7


def test_every_event():
    for event in EVENTS:
        known = TypeAdapter(RawMessageStreamEvent).validate_python(plain(event), strict=True)
        assert known.type == event.__struct_config__.tag == plain(event)["type"]
        assert msgspec.json.decode(msgspec.json.encode(event), type=MessagesEvent) == event
