"""What schemathesis is told about this server: requests are kept cheap, and refusals are looked at closely.

Loaded by schemathesis in its own environment, where the project is not installed.
"""

from __future__ import annotations

import re
from typing import Any

import schemathesis

MAX_TOKENS = 1
GRAMMAR_CODES = ("invalid_grammar", "grammar_too_large")
"""Whether a schema, a regular expression or a grammar can be compiled is beyond a schema too."""

_ABSENT_IS_ENDLESS = {"/v1/chat/completions": "max_tokens", "/v1/responses": "max_output_tokens"}
_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")

BEYOND_A_SCHEMA = (
    r"ids run from 0 to \d+",
    r"add_special_tokens with messages",
    r"cannot be written",
    r"max_tokens=\d+ and max_completion_tokens=\d+: give one",
    r"stream_options without stream",
    r"context",
    r"control tokens",
    r"ask for one form of the text each",
    r"tool_choice asks for a call, but tools is empty",
    r"which is not among the tools",
    r"is taken by an earlier tool",
    r"is a tool's result, and no message before it",
    r"continuing the last message is not served",
    r"give at most max_tokens",
    r"chat template does not read it",
    r"top_logprobs without logprobs",
    r"prompt_logprobs with stream",
    r"is the id of no earlier call",
    r"is not JSON",
    r"tools with prompt: the chat template shows tools",
    r"best_of=-?\d+ ",
    r"ignore_eos=True is not allowed: give false with structured output",
    r"bad_words holds .*, which has no token",
    r"text\.format\.type=.* is not served",
    r"the parameters of tool .* cannot be enforced",
    r"max_tokens=0 returns nothing: give at least 1, or set echo",
    r"bad_words (holds|gives) .*: at most \d+ (tokens )?can be looked for",
    r"the answer's text is constrained, and tool_choice='\w+'.* asks for a call",
    r"no token may come",
)
"""Why a request that satisfies the schema may be refused: what depends on other fields, the model or its vocabulary."""


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Ask for few tokens, in requests that ask for none or many; what is wrong with a request stays wrong."""
    case.body = body = _whole_numbers(case.body)
    if not isinstance(body, dict):
        return
    for name in _LIMITS:
        if type(body.get(name)) is int and body[name] > MAX_TOKENS:
            body[name] = MAX_TOKENS
    endless = _ABSENT_IS_ENDLESS.get(case.operation.path)
    if endless is not None and all(body.get(name) is None for name in _LIMITS):
        body[endless] = MAX_TOKENS


def _whole_numbers(value: Any) -> Any:
    """Return a value with 5 in place of 5.0: to a schema both are integers, and this server takes the first alone."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_whole_numbers(item) for item in value]
    return {key: _whole_numbers(item) for key, item in value.items()} if isinstance(value, dict) else value


@schemathesis.check
def refused_for_what_no_schema_says(ctx: Any, response: Any, case: Any) -> None:
    """A request that satisfies the schema is refused for a reason that a schema cannot express, or not at all."""
    meta = case.meta
    if meta is None or not meta.generation.mode.is_positive or response.status_code != 400:
        return
    error = response.json()["error"]
    message = error["message"]
    if error.get("code") in GRAMMAR_CODES:
        return
    assert any(re.search(pattern, message) for pattern in BEYOND_A_SCHEMA), f"the schema allows it, but: {message}"


@schemathesis.check
def errors_say_what_to_do(ctx: Any, response: Any, case: Any) -> None:
    """Every error has words of its own and names the field at fault, if there is one."""
    if response.status_code < 400 or case.operation.path in ("/health", "/metrics"):
        return
    error = response.json()["error"]
    assert len(error["message"]) > 10, error
    assert error["type"], error
