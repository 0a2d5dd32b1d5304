"""The accepted fields of requests, with exact types: "5" is not 5, and true is not 1. Chat's own: chat_requests."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from slipstream.wire.request import MAX_BAD_SEQUENCE_LEN
from slipstream.wire.sampling_params import (
    MAX_BAD_WORDS,
    MAX_LOGPROBS,
    MAX_N,
    MAX_STOP_STRINGS,
    MAX_STOP_TOKEN_IDS,
)

MAX_LOGIT_BIASES = 4096
MAX_ALLOWED_TOKEN_IDS = 65_536
MAX_CHOICES = 4096

TOOLS_BOUND = (
    "where tool_choice forces a call, or one of the tools is strict, only these are called and their schemas bind the "
    "arguments; else names and arguments are what the model writes"
)
"""What becomes of the schemas of tools, in every protocol."""


class Fields(BaseModel):
    """What every request model is: exact types, no other field, frozen."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class StreamOptions(Fields):
    """Options of a stream."""

    include_usage: bool | None = Field(None, description="end the stream with a chunk that carries the usage")
    continuous_usage_stats: bool | None = Field(
        None, description="with include_usage: every chunk carries what its choice has cost so far"
    )
    include_obfuscation: bool | None = Field(None, description="ignored; chunks are never padded")


def _at_most(max_items: int) -> BeforeValidator:
    """Refuse a list or an object by its count, before its items are looked at."""

    def check(value: object) -> object:
        if isinstance(value, (list, dict)) and len(value) > max_items:
            raise PydanticCustomError("too_long", "at most {max_items} items", {"max_items": max_items})
        return value

    return BeforeValidator(check)


# Limits of lists are checked while they are read: a body holds millions of items, and every bad one is an error.
_StopStrings = Annotated[list[str], Field(max_length=MAX_STOP_STRINGS)]


class SamplingFields(Fields):
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
    repetition_penalty: float = Field(
        1.0, description="above 1 makes tokens of the prompt and the answer less likely; above 0, at most 100; 1 is off"
    )
    presence_penalty: float = Field(
        0.0, description="subtracted from the logit of every token that the answer holds; -2 to 2, 0 is off"
    )
    frequency_penalty: float = Field(
        0.0, description="the same, times how often the answer holds the token; -2 to 2, 0 is off"
    )
    logit_bias: Annotated[dict[str, float], _at_most(MAX_LOGIT_BIASES)] = Field(
        {}, description=f"token id to a value from -100 to 100, added to its logit; at most {MAX_LOGIT_BIASES}"
    )
    allowed_token_ids: Annotated[list[int], Field(fail_fast=True), _at_most(MAX_ALLOWED_TOKEN_IDS)] | None = Field(
        None, description=f"only these tokens may be drawn; at most {MAX_ALLOWED_TOKEN_IDS}"
    )
    bad_words: Annotated[list[str], _at_most(MAX_BAD_WORDS)] = Field(
        [],
        description=f"texts that the answer may not contain; at most {MAX_BAD_WORDS}, of {MAX_BAD_SEQUENCE_LEN} tokens "
        "each at most",
    )
    min_tokens: int = Field(0, description="no end before that many tokens; at most max_tokens")
    prompt_logprobs: int | None = Field(
        None,
        description="0 returns the log-probability of each prompt token, k also of the k likeliest there, which have "
        f"a rank; at most {MAX_LOGPROBS}",
    )
    n: int = Field(1, description=f"answers per prompt, at most {MAX_N}; answer i has the seed plus i")
    response_format: dict[str, Any] | None = Field(
        None,
        description='what the text must be: {"type": "text"}, json_object, json_schema or structural_tag; beside tools '
        'only with tool_choice "none"',
    )
    structured_outputs: dict[str, Any] | None = Field(
        None, description="one of json, regex, choice, grammar, json_object, structural_tag: what the text must be"
    )
    guided_json: dict[str, Any] | str | bool | None = Field(None, description="structured_outputs.json, an older name")
    guided_regex: str | None = Field(None, description="structured_outputs.regex, an older name")
    guided_choice: Annotated[list[str], Field(fail_fast=True), _at_most(MAX_CHOICES)] | None = Field(
        None, description=f"structured_outputs.choice, an older name; at most {MAX_CHOICES}"
    )
    guided_grammar: str | None = Field(None, description="structured_outputs.grammar, an older name")


class CompletionRequest(SamplingFields):
    """POST /v1/completions."""

    prompt: Any = Field(description="text, token ids, or a list of either; control tokens in text count as such")
    max_tokens: int = Field(
        16, description="most tokens to return; 0 only with echo or prompt_logprobs, to score the prompt"
    )
    logprobs: int | None = Field(
        None,
        description="0 returns each token's log-probability, "
        f"k also those of the k likeliest at its place; at most {MAX_LOGPROBS}",
    )
    echo: bool = Field(False, description="begin the text with the prompt; with logprobs, the tokens too")
    best_of: int | None = Field(None, description="only the same as n; no choosing among answers")
    add_special_tokens: bool = Field(True, description="apply the tokenizer's own prefix, if it has one")
    return_token_ids: bool = Field(False, description="add prompt_token_ids and token_ids to each choice")
    return_tokens_as_token_ids: bool = Field(False, description="write tokens of logprobs as token_id:N")


class TokenizeRequest(Fields):
    """POST /tokenize: a prompt or messages."""

    model: str | None = Field(None, description="the served model's name; absent means that one")
    prompt: str | None = Field(None, description="text; control tokens in it count as such")
    messages: list[Any] | None = Field(None, description="a conversation, instead of prompt")
    add_special_tokens: bool | None = Field(None, description="for prompt; absent means true")
    tools: list[Any] = Field([], description="for messages: functions that the model may call")
    add_generation_prompt: bool = Field(True, description="for messages")
    chat_template_kwargs: dict[str, Any] = Field({}, description="for messages")
    return_token_strs: bool = Field(False, description="also return the vocabulary entries")


class DetokenizeRequest(Fields):
    """POST /detokenize."""

    model: str | None = Field(None, description="the served model's name; absent means that one")
    tokens: list[int] = Field(description="token ids")
