"""The shapes that /v1/chat/completions sends, in OpenAI's names; encoded by msgspec."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from slipstream.server.protocol.responses import PromptLogprob, RunningUsage, Speculation, Usage


class TopLogprob(msgspec.Struct, frozen=True, kw_only=True):
    """One of the most likely tokens at a place of a chat answer."""

    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(msgspec.Struct, frozen=True, kw_only=True):
    """One token of a chat answer."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob] = []


class ChatLogprobs(msgspec.Struct, frozen=True):
    """Tokens of a chat answer."""

    content: list[TokenLogprob]


class CalledFunction(msgspec.Struct, frozen=True, kw_only=True):
    """A function and the JSON text of its arguments."""

    name: str
    arguments: str


class ChatToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a tool."""

    id: str
    function: CalledFunction
    type: Literal["function"] = "function"


class TokenOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """Text that one token made certain: whether it was an accepted draft, and what the text belongs to.

    The texts of a call are those of its arguments.
    """

    text: str
    is_draft: bool
    part: Literal["reasoning", "content", "call"]


class ChatMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The answer; content is null when it holds calls and nothing else, and what there is none of is absent."""

    content: str | None
    role: Literal["assistant"] = "assistant"
    refusal: None = None
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[ChatToolCall] | UnsetType = UNSET


class ChatChoice(msgspec.Struct, frozen=True, kw_only=True):
    """A choice of a chat answer. What was not asked for is absent."""

    message: ChatMessage
    finish_reason: str | None
    stop_reason: int | str | None
    logprobs: ChatLogprobs | None
    index: int = 0
    token_ids: list[int] | UnsetType = UNSET
    token_origins: list[TokenOrigin] | UnsetType = UNSET


class ChatCompletion(msgspec.Struct, frozen=True, kw_only=True):
    """A whole chat answer. What was not asked for is absent."""

    id: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    object: Literal["chat.completion"] = "chat.completion"
    prompt_token_ids: list[int] | UnsetType = UNSET
    prompt_logprobs: list[dict[str, PromptLogprob] | None] | UnsetType = UNSET


class FunctionDelta(msgspec.Struct, frozen=True, kw_only=True):
    """The name with the first piece of a call, and more of the JSON text of the arguments."""

    name: str | UnsetType = UNSET
    arguments: str


class ToolCallDelta(msgspec.Struct, frozen=True, kw_only=True):
    """More of one call; id and type come with its first piece."""

    index: int
    id: str | UnsetType = UNSET
    type: Literal["function"] | UnsetType = UNSET
    function: FunctionDelta


class ChatDelta(msgspec.Struct, frozen=True, kw_only=True):
    """What a chunk adds to the answer."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[ToolCallDelta] | UnsetType = UNSET


class ChatChunkChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The choice that a chat chunk adds to. What was not asked for is absent."""

    delta: ChatDelta
    finish_reason: str | None = None
    stop_reason: int | str | UnsetType | None = UNSET
    logprobs: ChatLogprobs | None = None
    index: int = 0
    token_ids: list[int] | UnsetType = UNSET
    token_origins: list[TokenOrigin] | UnsetType = UNSET


class ChatChunk(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a chat answer; `speculation` counts what all choices have come to so far."""

    id: str
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: RunningUsage | UnsetType | None = UNSET
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    speculation: Speculation | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
