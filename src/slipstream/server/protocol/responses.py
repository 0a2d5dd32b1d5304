"""The shapes that are sent, in OpenAI's names; encoded by msgspec."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

MIN_LOGPROB = -9999.0
"""What an impossible token's log-probability is sent as: JSON has no infinity."""


class PromptTokensDetails(msgspec.Struct, frozen=True):
    """Tokens of the prompt that were found in the cache."""

    cached_tokens: int


class CompletionTokensDetails(msgspec.Struct, frozen=True):
    """Drafts among the returned tokens, and drafts that were not taken."""

    accepted_prediction_tokens: int
    rejected_prediction_tokens: int


class Speculation(msgspec.Struct, frozen=True):
    """Counts over the returned tokens; num_emitted / num_verify_steps is the acceptance length.

    `num_emitted` are the returned tokens that verify steps made. It is less than accepted drafts plus verify steps when
    a stop or the limit cut the last run.
    """

    num_verify_steps: int
    num_draft_tokens: int
    num_accepted: int
    num_emitted: int


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What a request cost."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails
    speculation: Speculation


class TokenLogprob(msgspec.Struct, frozen=True, kw_only=True):
    """One token of a chat answer."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[str] = []


class ChatLogprobs(msgspec.Struct, frozen=True):
    """Tokens of a chat answer."""

    content: list[TokenLogprob]


class CompletionLogprobs(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of a completion; `text_offset` counts characters of the tokens before."""

    tokens: list[str]
    token_logprobs: list[float]
    text_offset: list[int]
    top_logprobs: None = None


class ChatMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The answer."""

    content: str
    role: Literal["assistant"] = "assistant"
    refusal: None = None


class ChatChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The one choice of a chat answer."""

    message: ChatMessage
    finish_reason: str | None
    stop_reason: int | str | None
    logprobs: ChatLogprobs | None
    index: int = 0


class ChatCompletion(msgspec.Struct, frozen=True, kw_only=True):
    """A whole chat answer."""

    id: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    object: Literal["chat.completion"] = "chat.completion"


class ChatDelta(msgspec.Struct, frozen=True, kw_only=True):
    """What a chunk adds to the answer."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET


class ChatChunkChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The one choice of a chat chunk."""

    delta: ChatDelta
    finish_reason: str | None = None
    stop_reason: int | str | UnsetType | None = UNSET
    logprobs: ChatLogprobs | None = None
    index: int = 0


class ChatChunk(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a chat answer."""

    id: str
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: Usage | UnsetType | None = UNSET
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"


class CompletionChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The choice of one prompt: a whole one, or what a chunk adds."""

    index: int
    text: str
    finish_reason: str | None
    stop_reason: int | str | None
    logprobs: CompletionLogprobs | None


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """Whole completions, or a chunk of them."""

    id: str
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | UnsetType | None = UNSET
    object: Literal["text_completion"] = "text_completion"


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A served model."""

    id: str
    created: int
    root: str
    max_model_len: int | None
    object: Literal["model"] = "model"
    owned_by: Literal["slipstream"] = "slipstream"
    parent: None = None


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    """The served models."""

    data: list[Model]
    object: Literal["list"] = "list"


class Tokenized(msgspec.Struct, frozen=True, kw_only=True):
    """Token ids of a text."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str | None] | None


class Detokenized(msgspec.Struct, frozen=True, kw_only=True):
    """Text of token ids."""

    prompt: str


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """How the engine is; `stage`, `done` and `total` tell of loading."""

    status: str
    reason: str | UnsetType = UNSET
    stage: str | UnsetType = UNSET
    done: int | UnsetType = UNSET
    total: int | UnsetType = UNSET


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """Version of the server."""

    version: str


class Error(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """What every error is answered with."""

    error: Error
