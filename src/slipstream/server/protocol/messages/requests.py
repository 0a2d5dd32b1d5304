"""The accepted fields of /v1/messages and its count_tokens, and the tables of those that are not served.

The conversation, tools and choices arrive as they are; `input` reads them.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from slipstream.server.protocol.fields import Ignored, Refused
from slipstream.server.protocol.requests import TOOLS_BOUND, Fields
from slipstream.text.messages import MAX_MESSAGES
from slipstream.wire.sampling_params import MAX_STOP_STRINGS

_StopSequences = Annotated[list[Annotated[str, Field(min_length=1)]], Field(max_length=MAX_STOP_STRINGS)]


class ConversationFields(Fields):
    """What the prompt is made of."""

    model: str = Field(description="the served model's name")
    messages: list[Any] = Field(
        description=f"the conversation, at most {MAX_MESSAGES} messages of user, assistant or system; content is a "
        "string or a list of blocks: text, thinking, redacted_thinking, tool_use, tool_result"
    )
    system: str | list[Any] | None = Field(
        None, description="instructions before the conversation: a string or a list of text blocks"
    )
    tools: list[Any] = Field([], description=f"tools with name, description and input_schema; {TOOLS_BOUND}")
    tool_choice: dict[str, Any] | None = Field(
        None, description='{"type": …} with auto, any, tool (and its name) or none; also disable_parallel_tool_use'
    )
    thinking: dict[str, Any] | None = Field(
        None,
        description='{"type": …} with enabled, disabled or adaptive; absent leaves the chat template its default. '
        "budget_tokens is ignored: reasoning is bounded by max_tokens alone",
    )
    output_config: dict[str, Any] | None = Field(
        None,
        description='{"format": {"type": "json_schema", "schema": …}} constrains the text; effort is ignored: the '
        "model has no degrees of it",
    )


class MessagesRequest(ConversationFields):
    """POST /v1/messages."""

    max_tokens: int = Field(ge=1, description="most tokens to return, reasoning among them; at least 1")
    stop_sequences: _StopSequences = Field(
        [], description=f"strings that end the text; at most {MAX_STOP_STRINGS}, none of them empty"
    )
    stream: bool = Field(False, description="send events as the answer is generated")
    temperature: float = Field(1.0, description="0 is greedy; up to 100")
    top_p: float = Field(1.0, description="nucleus mass above 0 and at most 1; 1 is off")
    top_k: int = Field(0, description="keep the k most likely tokens; 0 or -1 is off")


class CountTokensRequest(ConversationFields):
    """POST /v1/messages/count_tokens."""


MESSAGES_IGNORED: tuple[Ignored, ...] = (
    Ignored("metadata", "names the caller's end user; nothing is stored"),
    Ignored("cache_control", "equal prompt beginnings are always reused"),
    Ignored("service_tier", "there is one tier"),
    Ignored("speed", "there is one speed"),
    Ignored("inference_geo", "the model runs where this server runs"),
    Ignored("diagnostics", "nothing of earlier requests is kept that could be compared"),
    Ignored("user_profile_id", "names the caller's end user; nothing is stored"),
    Ignored("workspace_id", "there are no workspaces"),
)
"""Ignored by both endpoints of the Messages API."""

MESSAGES_REFUSED: tuple[Refused, ...] = (
    Refused("container", "the server runs no code"),
    Refused("mcp_servers", "the server calls no other servers; send their tools as tools", ([],)),
    Refused(
        "context_management",
        "conversations are never edited; shorten the messages",
        ({}, {"edits": []}, {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}),
    ),
    Refused("output_format", "give the format as output_config.format"),
)
"""Refused by both endpoints of the Messages API."""
