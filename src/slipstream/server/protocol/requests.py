"""The accepted fields of every endpoint, with exact types: "5" is not 5, and true is not 1."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from slipstream.text.messages import MAX_MESSAGES
from slipstream.wire.sampling_params import MAX_STOP_STRINGS, MAX_STOP_TOKEN_IDS


class _Fields(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class StreamOptions(_Fields):
    """Options of a stream."""

    include_usage: bool | None = Field(None, description="end the stream with a chunk that carries the usage")
    continuous_usage_stats: bool | None = Field(None, description="only false is served")
    include_obfuscation: bool | None = Field(None, description="ignored; chunks are never padded")


# Limits of lists are checked while they are read: a body holds millions of items, and every bad one is an error.
_StopStrings = Annotated[list[str], Field(max_length=MAX_STOP_STRINGS)]


class SamplingFields(_Fields):
    """Fields that both generating endpoints accept."""

    model: str | None = Field(None, description="the served model's name; absent means that one")
    stream: bool = Field(False, description="send chunks as they are generated")
    stream_options: StreamOptions | None = Field(None, description="only with stream")
    temperature: float = Field(1.0, description="0 is greedy; up to 100")
    top_p: float = Field(1.0, description="nucleus mass above 0 and at most 1; 1 is off")
    top_k: int = Field(0, description="keep the k most likely tokens; 0 or -1 is off")
    min_p: float = Field(0.0, description="drop tokens less likely than min_p times the likeliest; 0 is off")
    seed: int | None = Field(None, description="the same seed and prompt give the same text; absent draws one")
    stop: str | _StopStrings | None = Field(None, description=f"strings that end the text; at most {MAX_STOP_STRINGS}")
    stop_token_ids: list[int] = Field(
        [], max_length=MAX_STOP_TOKEN_IDS, description=f"token ids that end the text; at most {MAX_STOP_TOKEN_IDS}"
    )
    ignore_eos: bool = Field(False, description="do not end at the model's end token")
    skip_special_tokens: bool = Field(True, description="leave special tokens out of the text")
    include_stop_str_in_output: bool = Field(False, description="keep what ended the text")


class ChatRequest(SamplingFields):
    """POST /v1/chat/completions."""

    messages: list[Any] = Field(
        description=f"the conversation, at most {MAX_MESSAGES} messages; content is a string or a list of text parts"
    )
    max_tokens: int | None = Field(None, description="most tokens to return; absent means the rest of the context")
    max_completion_tokens: int | None = Field(None, description="same as max_tokens; give one of them")
    logprobs: bool = Field(False, description="return each token's log-probability")
    add_generation_prompt: bool = Field(True, description="end the prompt with the opening of the assistant's turn")
    chat_template_kwargs: dict[str, Any] = Field({}, description="further variables of the chat template")


class CompletionRequest(SamplingFields):
    """POST /v1/completions."""

    prompt: Any = Field(description="text, token ids, or a list of either; control tokens in text count as such")
    max_tokens: int = Field(16, description="most tokens to return")
    logprobs: int | None = Field(None, description="0 returns each token's log-probability")
    add_special_tokens: bool = Field(True, description="apply the tokenizer's own prefix, if it has one")


class TokenizeRequest(_Fields):
    """POST /tokenize: a prompt or messages."""

    model: str | None = Field(None, description="the served model's name; absent means that one")
    prompt: str | None = Field(None, description="text; control tokens in it count as such")
    messages: list[Any] | None = Field(None, description="a conversation, instead of prompt")
    add_special_tokens: bool | None = Field(None, description="for prompt; absent means true")
    add_generation_prompt: bool = Field(True, description="for messages")
    chat_template_kwargs: dict[str, Any] = Field({}, description="for messages")
    return_token_strs: bool = Field(False, description="also return the vocabulary entries")


class DetokenizeRequest(_Fields):
    """POST /detokenize."""

    model: str | None = Field(None, description="the served model's name; absent means that one")
    tokens: list[int] = Field(description="token ids")
