"""The shapes that the Messages API sends, in its own names; encoded by msgspec. Errors: errors."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from slipstream.server.protocol.messages.errors import MessagesErrorBody

UNSIGNED = "unsigned"
"""Signature of reasoning. Nothing is signed, and nothing is checked when reasoning comes back; clients send reasoning
back only if it has one."""


class _Tagged(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """An object that its `type` tells from others."""


class TextBlock(_Tagged, frozen=True, kw_only=True, tag="text"):
    """Text of the answer."""

    text: str
    citations: None = None


class ThinkingBlock(_Tagged, frozen=True, kw_only=True, tag="thinking"):
    """Reasoning, as the model wrote it."""

    thinking: str
    signature: str


class ToolUseBlock(_Tagged, frozen=True, kw_only=True, tag="tool_use"):
    """A call of a tool."""

    id: str
    name: str
    input: dict[str, Any]


Block = TextBlock | ThinkingBlock | ToolUseBlock


class MessagesUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What a request cost; its prompt has `input_tokens` and `cache_read_input_tokens` together."""

    input_tokens: int
    output_tokens: int
    cache_read_input_tokens: int
    cache_creation_input_tokens: int = 0


class Message(_Tagged, frozen=True, kw_only=True, tag="message"):
    """A whole answer, or what a stream begins with."""

    id: str
    model: str
    content: list[Block]
    stop_reason: str | None
    stop_sequence: str | None
    usage: MessagesUsage
    role: Literal["assistant"] = "assistant"


class TokenCount(msgspec.Struct, frozen=True):
    """Tokens of a conversation as a prompt."""

    input_tokens: int


class TextDelta(_Tagged, frozen=True, kw_only=True, tag="text_delta"):
    """More text."""

    text: str


class ThinkingDelta(_Tagged, frozen=True, kw_only=True, tag="thinking_delta"):
    """More reasoning."""

    thinking: str


class SignatureDelta(_Tagged, frozen=True, kw_only=True, tag="signature_delta"):
    """The signature, once reasoning is whole."""

    signature: str


class InputJsonDelta(_Tagged, frozen=True, kw_only=True, tag="input_json_delta"):
    """More of the JSON text of a call's input."""

    partial_json: str


class MessageEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How the answer ended."""

    stop_reason: str | None
    stop_sequence: str | None


class MessageStart(_Tagged, frozen=True, kw_only=True, tag="message_start"):
    """The first event."""

    message: Message


class BlockStart(_Tagged, frozen=True, kw_only=True, tag="content_block_start"):
    """A block begins, empty."""

    index: int
    content_block: Block


class BlockDelta(_Tagged, frozen=True, kw_only=True, tag="content_block_delta"):
    """A block grows."""

    index: int
    delta: TextDelta | ThinkingDelta | SignatureDelta | InputJsonDelta


class BlockStop(_Tagged, frozen=True, kw_only=True, tag="content_block_stop"):
    """A block is whole, or the answer ended within it."""

    index: int


class MessageDelta(_Tagged, frozen=True, kw_only=True, tag="message_delta"):
    """The end of the answer, with its whole usage."""

    delta: MessageEnd
    usage: MessagesUsage


class MessageStop(_Tagged, frozen=True, kw_only=True, tag="message_stop"):
    """The last event."""


MessagesEvent = MessageStart | BlockStart | BlockDelta | BlockStop | MessageDelta | MessageStop | MessagesErrorBody
