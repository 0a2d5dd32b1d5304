"""What becomes of every request field that is not served as asked: the tables, as data.

A field is one of four: accepted (declared in `requests`), ignored (harmless whatever its value), refused (understood,
and answered with 400 unless its value asks for nothing), or unknown (400). `null` always counts as absent.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Ignored:
    """A field that changes nothing here, whatever its value."""

    name: str
    reason: str


@dataclass(frozen=True)
class Refused:
    """A field that would change the answer and is not served.

    Args:
        name: of the field.
        reason: told to the caller.
        neutral: values, besides null, that ask for nothing and are accepted.
    """

    name: str
    reason: str
    neutral: tuple[object, ...] = ()


_OLD_TOOLS = "the older form of calls is not served; send tools and tool_choice"
_MEDIA = "the model takes and returns text only"

IGNORED: tuple[Ignored, ...] = (
    Ignored("user", "names the caller's end user; nothing is stored"),
    Ignored("safety_identifier", "names the caller's end user; nothing is stored"),
    Ignored("metadata", "tags for a store; nothing is stored"),
    Ignored("store", "nothing is stored"),
    Ignored("service_tier", "there is one tier"),
    Ignored("prompt_cache_key", "equal prompt beginnings are always reused"),
    Ignored("prompt_cache_retention", "equal prompt beginnings are always reused"),
)
"""Ignored by both generating endpoints."""

COMPLETION_IGNORED: tuple[Ignored, ...] = (
    Ignored("parallel_tool_calls", "has no meaning without tools, which only conversations have"),
)
"""Ignored by /v1/completions, besides `IGNORED`."""

REFUSED: tuple[Refused, ...] = (
    Refused("use_beam_search", "beam search is not served", (False,)),
    Refused("length_penalty", "beam search is not served", (1,)),
    Refused("logits_processors", "logits processors are not served", ([],)),
    Refused("guided_decoding_backend", "there is one implementation of structured output"),
    Refused("guided_whitespace_pattern", "white space between JSON values is what the standard allows"),
    Refused("truncate_prompt_tokens", "prompts are never cut; shorten the prompt"),
    Refused("spaces_between_special_tokens", "tokens are never joined with spaces", (True,)),
    Refused("priority", "requests are served in order of arrival", (0,)),
    Refused("cache_salt", "separate prefix caches are not served yet"),
    Refused("kv_transfer_params", "handing a cache to another instance is not served yet"),
    Refused("chat_template", "a request's own template is not rendered; the checkpoint's is used"),
)
"""Refused by both generating endpoints."""

CHAT_REFUSED: tuple[Refused, ...] = (
    Refused("functions", _OLD_TOOLS, ([],)),
    Refused("function_call", _OLD_TOOLS, ("none",)),
    Refused("reasoning", "pass what the chat template understands in chat_template_kwargs", ({},)),
    Refused("verbosity", "the model has no such setting", ("medium",)),
    Refused("modalities", _MEDIA, (["text"],)),
    Refused("audio", _MEDIA),
    Refused("mm_processor_kwargs", _MEDIA, ({},)),
    Refused("prediction", "predicted output is not served; drafts are made by the engine"),
    Refused("web_search_options", "the server does not search the web"),
    Refused("documents", "documents are not served; put them in a message", ([],)),
    Refused("continue_final_message", "continuing the last message is not served yet", (False,)),
    Refused("add_special_tokens", "the chat template writes every control token itself", (False,)),
    Refused("echo", "the prompt is not repeated", (False,)),
    Refused("best_of", "choosing among several answers is not served", (1,)),
)
"""Refused by /v1/chat/completions, besides `REFUSED`."""

COMPLETION_REFUSED: tuple[Refused, ...] = (
    Refused("suffix", "filling in the middle is not served", ("",)),
    Refused("prompt_embeds", "prompts are text or token ids"),
)
"""Refused by /v1/completions, besides `REFUSED`."""

TOKENIZE_REFUSED: tuple[Refused, ...] = (
    Refused("chat_template", "a request's own template is not rendered; the checkpoint's is used"),
    Refused("mm_processor_kwargs", _MEDIA, ({},)),
    Refused("continue_final_message", "continuing the last message is not served yet", (False,)),
)
"""Refused by /tokenize."""


def is_neutral(value: object, refused: Refused) -> bool:
    """Return whether a value of a refused field asks for nothing; true and 1 are different values."""
    return value is None or any(_is_same(value, neutral) for neutral in refused.neutral)


def _is_same(value: object, neutral: object) -> bool:
    if isinstance(value, bool) or isinstance(neutral, bool):
        return value is neutral
    return value == neutral
