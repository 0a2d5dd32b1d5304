"""The shapes that /v1/responses sends, in OpenAI's names; encoded by msgspec."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

ItemStatus = Literal["in_progress", "completed", "incomplete"]
ResponseStatus = Literal["in_progress", "completed", "incomplete", "failed"]


class _Tagged(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """An object that its `type` tells from others."""


class OutputText(_Tagged, frozen=True, kw_only=True, tag="output_text"):
    """Text of a message."""

    text: str
    annotations: list[str] = []
    logprobs: list[str] = []


class ReasoningText(_Tagged, frozen=True, kw_only=True, tag="reasoning_text"):
    """Text of reasoning, as the model wrote it."""

    text: str


class ReasoningItem(_Tagged, frozen=True, kw_only=True, tag="reasoning"):
    """Reasoning; it is never summarised nor encrypted."""

    id: str
    status: ItemStatus
    content: list[ReasoningText]
    summary: list[str] = []
    encrypted_content: None = None


class MessageItem(_Tagged, frozen=True, kw_only=True, tag="message"):
    """Text of the answer."""

    id: str
    status: ItemStatus
    content: list[OutputText]
    role: Literal["assistant"] = "assistant"


class FunctionCallItem(_Tagged, frozen=True, kw_only=True, tag="function_call"):
    """A call; `arguments` is JSON text, cut off if the item is incomplete."""

    id: str
    status: ItemStatus
    call_id: str
    name: str
    arguments: str


Item = ReasoningItem | MessageItem | FunctionCallItem


class InputTokensDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of the prompt that were found in the cache."""

    cached_tokens: int
    cache_write_tokens: int = 0


class OutputTokensDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens whose text is reasoning."""

    reasoning_tokens: int


class ResponseUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What a request cost."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class IncompleteDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Why an answer is not whole."""

    reason: Literal["max_output_tokens"]


class ResponseError(msgspec.Struct, frozen=True, kw_only=True):
    """Why there is no answer."""

    code: str
    message: str


class ResponseReasoning(msgspec.Struct, frozen=True, kw_only=True):
    """The effort that was asked for."""

    effort: str | None
    summary: None = None


class FunctionTool(_Tagged, frozen=True, kw_only=True, tag="function"):
    """A function that the model may call."""

    name: str
    description: str | None
    parameters: dict[str, Any]
    strict: bool


class ResponseBody(msgspec.Struct, frozen=True, kw_only=True):
    """An answer with what was asked: whole, or as far as it has come."""

    id: str
    created_at: int
    model: str
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, str]
    parallel_tool_calls: bool
    reasoning: ResponseReasoning
    temperature: float
    text: dict[str, Any]
    tool_choice: str | dict[str, str]
    tools: list[FunctionTool]
    top_p: float
    status: ResponseStatus = "in_progress"
    output: list[Item] = []
    usage: ResponseUsage | None = None
    incomplete_details: IncompleteDetails | None = None
    error: ResponseError | None = None
    completed_at: int | None = None
    background: Literal[False] = False
    previous_response_id: None = None
    store: Literal[False] = False
    top_logprobs: Literal[0] = 0
    truncation: Literal["disabled"] = "disabled"
    object: Literal["response"] = "response"


class _Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """What every event has: its type and its place in the stream."""

    sequence_number: int


class _Lifecycle(_Event, frozen=True, kw_only=True):
    """An event that carries the answer as far as it has come."""

    response: ResponseBody


class ResponseCreated(_Lifecycle, frozen=True, kw_only=True, tag="response.created"):
    """The first event."""


class ResponseInProgress(_Lifecycle, frozen=True, kw_only=True, tag="response.in_progress"):
    """The engine has the request."""


class ResponseCompleted(_Lifecycle, frozen=True, kw_only=True, tag="response.completed"):
    """The last event of an answer that is whole."""


class ResponseIncomplete(_Lifecycle, frozen=True, kw_only=True, tag="response.incomplete"):
    """The last event of an answer that a limit cut."""


class ResponseFailed(_Lifecycle, frozen=True, kw_only=True, tag="response.failed"):
    """The last event of an answer that an error ended."""


class _ItemEvent(_Event, frozen=True, kw_only=True):
    output_index: int
    item: Item


class ItemAdded(_ItemEvent, frozen=True, kw_only=True, tag="response.output_item.added"):
    """An item begins, empty."""


class ItemDone(_ItemEvent, frozen=True, kw_only=True, tag="response.output_item.done"):
    """An item is whole, or the answer ended within it."""


class _ContentEvent(_Event, frozen=True, kw_only=True):
    item_id: str
    output_index: int
    content_index: Literal[0] = 0


class PartAdded(_ContentEvent, frozen=True, kw_only=True, tag="response.content_part.added"):
    """The one part of an item begins."""

    part: OutputText | ReasoningText


class PartDone(_ContentEvent, frozen=True, kw_only=True, tag="response.content_part.done"):
    """The one part of an item ends."""

    part: OutputText | ReasoningText


class OutputTextDelta(_ContentEvent, frozen=True, kw_only=True, tag="response.output_text.delta"):
    """More text."""

    delta: str
    logprobs: list[str] = []


class OutputTextDone(_ContentEvent, frozen=True, kw_only=True, tag="response.output_text.done"):
    """The whole text of an item."""

    text: str
    logprobs: list[str] = []


class ReasoningTextDelta(_ContentEvent, frozen=True, kw_only=True, tag="response.reasoning_text.delta"):
    """More reasoning."""

    delta: str


class ReasoningTextDone(_ContentEvent, frozen=True, kw_only=True, tag="response.reasoning_text.done"):
    """The whole reasoning of an item."""

    text: str


class ArgumentsDelta(_Event, frozen=True, kw_only=True, tag="response.function_call_arguments.delta"):
    """More of the arguments of a call."""

    item_id: str
    output_index: int
    delta: str


class ArgumentsDone(_Event, frozen=True, kw_only=True, tag="response.function_call_arguments.done"):
    """The whole arguments of a call."""

    item_id: str
    output_index: int
    name: str
    arguments: str


ResponseEvent = (
    ResponseCreated
    | ResponseInProgress
    | ResponseCompleted
    | ResponseIncomplete
    | ResponseFailed
    | ItemAdded
    | ItemDone
    | PartAdded
    | PartDone
    | OutputTextDelta
    | OutputTextDone
    | ReasoningTextDelta
    | ReasoningTextDone
    | ArgumentsDelta
    | ArgumentsDone
)
