"""The messages of a conversation: which shapes are accepted, and what each other shape is told.

Not here: HTTP, and how a template renders them (chat_template).
"""

from __future__ import annotations

from typing import Any

from slipstream.base.errors import RequestError, UnsupportedFeature

ROLES = ("root", "system", "developer", "user", "assistant")
"""Roles of a message. `tool` is known, and refused as long as tools are not served."""

TEXT_FIELDS = ("name", "reasoning_content", "reasoning")
"""Optional text fields that are handed to the template."""

MAX_MESSAGES = 10_000
"""Most messages of a conversation, and most text parts of all its messages together."""

EMPTY_FIELDS: dict[str, str] = {
    "tool_calls": "tools are not served yet",
    "tool_call_id": "tools are not served yet",
    "function_call": "tools are not served yet",
    "audio": "the model neither hears nor speaks",
    "refusal": "a refusal is not part of the chat format",
    "annotations": "annotations are not part of the chat format",
}
"""Fields that clients send along with their neutral value (null or empty); any other value is refused, and why."""


def parse_messages(value: object) -> list[dict[str, str]]:
    """Return messages as role, content and optional text fields, all of them strings.

    Args:
        value: a list of objects with `role` and `content`; content is a string or a list of text parts, which are
            joined without a separator.

    Raises:
        RequestError: a shape that is not accepted; `param` says where.
        UnsupportedFeature: a shape that is understood and not served.
    """
    if not isinstance(value, list):
        raise RequestError(f"messages is a {_kind(value)}: give a list of messages", param="messages")
    if not value:
        raise RequestError("messages is empty: give at least one message", param="messages")
    _check_counts(value)
    return [_parse_message(message, f"messages[{place}]") for place, message in enumerate(value)]


def _check_counts(messages: list[Any]) -> None:
    """Count before looking at a single item: a body holds a million of them."""
    num_parts = 0
    if len(messages) <= MAX_MESSAGES:
        contents = [message.get("content") for message in messages if isinstance(message, dict)]
        num_parts = sum(len(content) for content in contents if isinstance(content, list))
    for count, what in ((len(messages), "messages"), (num_parts, "parts of content")):
        if count > MAX_MESSAGES:
            raise RequestError(f"messages holds {count} {what}: give at most {MAX_MESSAGES}", param="messages")


def _parse_message(message: object, where: str) -> dict[str, str]:
    if not isinstance(message, dict):
        raise RequestError(f"{where} is a {_kind(message)}: give an object with role and content", param=where)
    role = message.get("role")
    if role in ("tool", "function"):
        raise UnsupportedFeature(f"{where}.role={role!r}: tools are not served yet", param=f"{where}.role")
    if not isinstance(role, str) or role not in ROLES:
        raise RequestError(
            f"{where}.role={_short(role)} is not allowed: one of {', '.join(ROLES)}", param=f"{where}.role"
        )
    parsed = {"role": role}
    for field, given in message.items():
        if field == "role":
            continue
        if field == "content":
            continue
        if field in TEXT_FIELDS:
            if given is None:
                continue
            if not isinstance(given, str):
                raise RequestError(f"{where}.{field} is a {_kind(given)}: give a string", param=f"{where}.{field}")
            parsed[field] = given
        elif field in EMPTY_FIELDS:
            if given is not None and given not in ([], ""):
                raise UnsupportedFeature(f"{where}.{field}: {EMPTY_FIELDS[field]}", param=f"{where}.{field}")
        else:
            raise RequestError(
                f"{where}.{_short(field)} is not a known field: a message has role, content, {', '.join(TEXT_FIELDS)}",
                param=f"{where}.{field}"[:120],
            )
    parsed["content"] = _parse_content(message.get("content"), where)
    return parsed


def _parse_content(content: object, where: str) -> str:
    where = f"{where}.content"
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise RequestError(f"{where} is a {_kind(content)}: give a string or a list of text parts", param=where)
    if not content:
        raise RequestError(f"{where} is an empty list: give a string or at least one text part", param=where)
    texts = []
    for place, part in enumerate(content):
        at = f"{where}[{place}]"
        if not isinstance(part, dict):
            raise RequestError(f'{at} is a {_kind(part)}: give {{"type": "text", "text": …}}', param=at)
        if part.get("type") != "text":
            raise UnsupportedFeature(
                f'{at}.type={_short(part.get("type"))} is not served: only parts of type "text" are',
                param=f"{at}.type",
            )
        if set(part) != {"type", "text"} or not isinstance(part["text"], str):
            raise RequestError(f'{at} must have exactly "type" and "text", a string', param=at)
        texts.append(part["text"])
    return "".join(texts)


def _kind(value: object) -> str:
    names: dict[type[Any], str] = {
        type(None): "null",
        bool: "boolean",
        int: "number",
        float: "number",
        str: "string",
        list: "list",
        dict: "object",
    }
    return names.get(type(value), type(value).__name__)


def _short(value: object) -> str:
    if isinstance(value, list | dict):
        return f"a {_kind(value)}"
    text = repr(value[:60] if isinstance(value, str) else value)
    return text if len(text) <= 60 else text[:57] + "…"
