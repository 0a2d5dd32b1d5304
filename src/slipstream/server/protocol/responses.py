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
    """Drafts among the returned tokens, drafts that were not taken, and tokens whose text is reasoning."""

    accepted_prediction_tokens: int
    rejected_prediction_tokens: int
    reasoning_tokens: int = 0


class Speculation(msgspec.Struct, frozen=True):
    """Counts over the returned tokens; num_emitted / num_verify_steps is the acceptance length.

    `num_emitted` are the returned tokens that verify steps made. It is less than accepted drafts plus verify steps when
    a stop or the limit cut the last run.
    """

    num_verify_steps: int
    num_draft_tokens: int
    num_accepted: int
    num_emitted: int


class RunningUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What one choice has cost up to a chunk."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Usage(RunningUsage, frozen=True, kw_only=True):
    """What a request cost."""

    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails
    speculation: Speculation


class CompletionLogprobs(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of a completion; `text_offset` says where in the text each begins.

    `top_logprobs` has the token itself and its alternatives, by text; of tokens with equal text the likeliest. The
    first token of an echoed prompt has neither.
    """

    tokens: list[str]
    token_logprobs: list[float | None]
    text_offset: list[int]
    top_logprobs: list[dict[str, float] | None]


class PromptLogprob(msgspec.Struct, frozen=True, kw_only=True):
    """One token at a place of the prompt; `rank` is absent when it is not among the alternatives."""

    logprob: float
    rank: int | UnsetType = UNSET
    decoded_token: str


class CompletionChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One choice: a whole one, or what a chunk adds. What was not asked for is absent."""

    index: int
    text: str
    finish_reason: str | None
    stop_reason: int | str | None
    logprobs: CompletionLogprobs | None
    prompt_logprobs: list[dict[str, PromptLogprob] | None] | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
    token_ids: list[int] | UnsetType = UNSET


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """Whole completions."""

    id: str
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage
    object: Literal["text_completion"] = "text_completion"


class CompletionChunk(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of completions; the last one has no choice and the usage of all, a `Usage`."""

    id: str
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: RunningUsage | UnsetType | None = UNSET
    object: Literal["text_completion"] = "text_completion"


class ModelEngine(msgspec.Struct, frozen=True, kw_only=True):
    """What runs a model, and how it speculates."""

    device: str
    dtype: str
    drafter: str
    draft_len: int
    verification: str


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A served model; `max_model_len` and `engine` are null while it loads."""

    id: str
    created: int
    root: str
    max_model_len: int | None
    engine: ModelEngine | None
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
