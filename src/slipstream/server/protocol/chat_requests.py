"""The accepted fields of /v1/chat/completions. Not here: what both generating endpoints accept (requests)."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from slipstream.base.errors import RequestError
from slipstream.server.protocol.requests import TOOLS_BOUND, SamplingFields
from slipstream.text.messages import MAX_MESSAGES
from slipstream.text.tools.schema import MAX_TOOLS
from slipstream.wire.sampling_params import MAX_LOGPROBS


class ChatRequest(SamplingFields):
    """POST /v1/chat/completions."""

    messages: list[Any] = Field(
        description=f"the conversation, at most {MAX_MESSAGES} messages; content is a string or a list of text parts"
    )
    max_tokens: int | None = Field(None, description="most tokens to return; absent means the rest of the context")
    max_completion_tokens: int | None = Field(None, description="same as max_tokens; give one of them")
    logprobs: bool = Field(False, description="return each token's log-probability")
    top_logprobs: int | None = Field(
        None, description=f"with logprobs, also those of the k likeliest at each token's place; at most {MAX_LOGPROBS}"
    )
    tools: list[Any] = Field([], description=f"functions that the model may call, at most {MAX_TOOLS}; {TOOLS_BOUND}")
    tool_choice: str | dict[str, Any] | None = Field(
        None,
        description='"auto" (the default with tools), "none" (the model sees the tools and cannot begin a call), '
        '"required", or an object that names a function; response_format beside tools needs "none"',
    )
    parallel_tool_calls: bool = Field(
        True,
        description="whether an answer may hold more than one call; if not, further ones are not written where calls "
        "are bound, see tools, and else not returned",
    )
    add_generation_prompt: bool = Field(True, description="end the prompt with the opening of the assistant's turn")
    chat_template_kwargs: dict[str, Any] = Field(
        {},
        description="further variables of the chat template, such as thinking_mode: enabled, disabled or adaptive; "
        "one that the template does not read is refused",
    )
    reasoning_effort: str | None = Field(
        None, description="handed to the chat template; refused when the template does not read it"
    )
    include_reasoning: bool = Field(True, description="return the reasoning in reasoning_content")
    return_token_ids: bool = Field(False, description="add prompt_token_ids, and token_ids to each choice")
    return_tokens_as_token_ids: bool = Field(False, description="write tokens of logprobs as token_id:N")
    return_token_origins: bool = Field(
        False, description="add token_origins to each choice: texts by token, and whether it was an accepted draft"
    )


def chat_names(request: ChatRequest) -> dict[str, str]:
    """Return what the caller calls a field that has another name in errors."""
    is_new = request.max_tokens is None and request.max_completion_tokens is not None
    return {"logprobs": "top_logprobs"} | ({"max_tokens": "max_completion_tokens"} if is_new else {})


def chat_max_tokens(request: ChatRequest) -> int | None:
    """Return the most tokens that a chat request allows; None means the rest of the context.

    Raises:
        RequestError: both spellings are given, with different values.
    """
    given = {value for value in (request.max_tokens, request.max_completion_tokens) if value is not None}
    if len(given) > 1:
        raise RequestError(
            f"max_tokens={request.max_tokens} and max_completion_tokens={request.max_completion_tokens}: give one",
            param="max_completion_tokens",
        )
    return given.pop() if given else None
