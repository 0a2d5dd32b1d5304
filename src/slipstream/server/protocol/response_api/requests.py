"""The accepted fields of /v1/responses, and the tables of those that are not served.

Items, tools and formats arrive as they are; `input` reads them.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from slipstream.server.protocol.fields import Ignored, Refused
from slipstream.server.protocol.requests import TOOLS_BOUND, Fields
from slipstream.text.messages import MAX_MESSAGES

MAX_METADATA = 16
_Metadata = Annotated[dict[str, str], Field(max_length=MAX_METADATA)]
_STORED = "nothing is stored: send the whole conversation as input"


class ResponseRequest(Fields):
    """POST /v1/responses."""

    model: str | None = Field(None, description="the served model's name; absent means that one")
    input: str | list[Any] = Field(
        description=f"a string, or at most {MAX_MESSAGES} items: message, reasoning, function_call, "
        "function_call_output; content is a string or a list of text parts"
    )
    instructions: str | None = Field(None, description="a system message before the input")
    max_output_tokens: int | None = Field(
        None, ge=1, description="most tokens to return, reasoning among them; absent means the rest of the context"
    )
    stream: bool = Field(False, description="send events as the answer is generated")
    temperature: float = Field(1.0, description="0 is greedy; up to 100")
    top_p: float = Field(1.0, description="nucleus mass above 0 and at most 1; 1 is off")
    top_k: int = Field(0, description="keep the k most likely tokens; 0 or -1 is off")
    seed: int | None = Field(None, description="the same seed and prompt give the same text; absent draws one")
    tools: list[Any] = Field([], description=f"functions with name, description and parameters; {TOOLS_BOUND}")
    tool_choice: str | dict[str, Any] | None = Field(
        None, description='none, auto, required, or {"type": "function", "name": …}'
    )
    parallel_tool_calls: bool = Field(True, description="whether an answer that must call may call more than once")
    text: dict[str, Any] | None = Field(
        None, description='{"format": …} with type text, json_object, or json_schema and its schema'
    )
    reasoning: dict[str, Any] | None = Field(
        None,
        description='{"effort": …}: none turns reasoning off, any other turns it on, for the model has no degrees of '
        "it; absent leaves the chat template its default. summary is ignored: reasoning is returned as it is",
    )
    include: list[str] = Field(
        [], description="only reasoning.encrypted_content, which changes nothing: reasoning is returned in the clear"
    )
    metadata: _Metadata = Field({}, description=f"at most {MAX_METADATA} texts by name; returned with the answer")


RESPONSES_IGNORED: tuple[Ignored, ...] = (
    Ignored("user", "names the caller's end user; nothing is stored"),
    Ignored("safety_identifier", "names the caller's end user; nothing is stored"),
    Ignored("store", "nothing is stored; previous_response_id is refused"),
    Ignored("service_tier", "there is one tier"),
    Ignored("prompt_cache_key", "equal prompt beginnings are always reused"),
    Ignored("prompt_cache_retention", "equal prompt beginnings are always reused"),
    Ignored("prompt_cache_options", "equal prompt beginnings are always reused"),
    Ignored("client_metadata", "notes of a client to itself"),
    Ignored("stream_options", "events are never padded, and the last one carries the usage"),
)
"""Ignored by /v1/responses."""

RESPONSES_REFUSED: tuple[Refused, ...] = (
    Refused("previous_response_id", _STORED),
    Refused("conversation", _STORED),
    Refused("prompt", "no prompts are stored: send instructions and input"),
    Refused("background", "an answer is made while its client waits", (False,)),
    Refused("max_tool_calls", "the server calls no tools of its own"),
    Refused("top_logprobs", "log-probabilities are returned by /v1/chat/completions", (0,)),
    Refused("truncation", "prompts are never cut; shorten the input", ("disabled",)),
    Refused("context_management", "conversations are never edited; shorten the input", ([],)),
    Refused("moderation", "the server moderates nothing"),
)
"""Refused by /v1/responses."""
