"""The messages of a conversation: which shapes are accepted, and what each other shape is told.

Not here: HTTP, and how a template renders them (chat_template).
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

from slipstream.base.errors import RequestError, UnsupportedFeature
from slipstream.text.tools.render import render_tool_call

ROLES = ("root", "system", "developer", "user", "assistant", "tool")
"""Roles of a message; a `tool` message is the result of a call."""

TEXT_FIELDS = ("name", "reasoning_content", "reasoning")
"""Optional text fields that are handed to the template."""

MAX_MESSAGES = 10_000
"""Most messages of a conversation, most text parts of all its messages together, and most tool calls."""

MAX_ARGUMENT_DEPTH = 64
"""Most objects and lists within each other in the arguments of a call."""

EMPTY_FIELDS: dict[str, str] = {
    "function_call": "the older form of calls is not served; send tool_calls",
    "audio": "the model neither hears nor speaks",
    "refusal": "a refusal is not part of the chat format",
    "annotations": "annotations are not part of the chat format",
}
"""Fields that clients send along with their neutral value (null or empty); any other value is refused, and why."""

_KNOWN_FIELDS = frozenset({*TEXT_FIELDS, *EMPTY_FIELDS, "tool_calls", "tool_call_id"})


def parse_messages(value: object) -> list[dict[str, Any]]:
    """Return messages as role, content and optional text fields, all of them strings, and calls.

    An assistant's `tool_calls` are `{"type": "function", "function": {"name", "arguments"}}`, with an `id` if one was
    given; the arguments are an object. A tool's result has `tool_call_id`, if one was given.

    Args:
        value: a list of objects with `role` and `content`; content is a string or a list of text parts, which are
            joined without a separator. Beside `tool_calls` it may be null or absent, which counts as empty.

    Raises:
        RequestError: a shape that is not accepted; `param` says where.
        UnsupportedFeature: a shape that is understood and not served.
    """
    if not isinstance(value, list):
        raise RequestError(f"messages is a {_kind(value)}: give a list of messages", param="messages")
    if not value:
        raise RequestError("messages is empty: give at least one message", param="messages")
    _check_counts(value)
    messages: list[dict[str, Any]] = []
    calls: list[str | None] = []
    for place, message in enumerate(value):
        parsed = _parse_message(message, f"messages[{place}]")
        if parsed["role"] == "tool":
            _check_result(parsed, calls, f"messages[{place}]")
        calls += [call.get("id") for call in parsed.get("tool_calls", ())]
        messages.append(parsed)
    return messages


def _check_counts(messages: list[Any]) -> None:
    """Count before looking at a single item: a body holds a million of them."""
    num_parts = num_calls = 0
    if len(messages) <= MAX_MESSAGES:
        objects = [message for message in messages if isinstance(message, dict)]
        num_parts = sum(len(parts) for message in objects if isinstance(parts := message.get("content"), list))
        num_calls = sum(len(calls) for message in objects if isinstance(calls := message.get("tool_calls"), list))
    for count, what in (
        (len(messages), "messages"),
        (num_parts, "parts of content"),
        (num_calls, "tool calls"),
    ):
        if count > MAX_MESSAGES:
            raise RequestError(f"messages holds {count} {what}: give at most {MAX_MESSAGES}", param="messages")


def _parse_message(message: object, where: str) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise RequestError(f"{where} is a {_kind(message)}: give an object with role and content", param=where)
    role = message.get("role")
    if role == "function":
        raise UnsupportedFeature(
            f"{where}.role='function': the older form of calls is not served; give role 'tool'", param=f"{where}.role"
        )
    if not isinstance(role, str) or role not in ROLES:
        raise RequestError(
            f"{where}.role={_short(role)} is not allowed: one of {', '.join(ROLES)}", param=f"{where}.role"
        )
    parsed: dict[str, Any] = {"role": role}
    own = {"assistant": "tool_calls", "tool": "tool_call_id"}
    for field, given in message.items():
        at = f"{where}.{_clip(field)}"
        if field in ("role", "content") or (given is None and field in _KNOWN_FIELDS):
            continue
        if field in TEXT_FIELDS or (field == "tool_call_id" and role == "tool"):
            if not isinstance(given, str):
                raise RequestError(f"{at} is a {_kind(given)}: give a string", param=at)
            parsed[field] = given
        elif field == "tool_calls" and role == "assistant":
            if calls := _parse_calls(given, at):
                parsed[field] = calls
        elif field in own.values():
            if given not in ([], ""):
                raise RequestError(f"{at} belongs to role {_owner(field, own)!r}, not {role!r}: leave it out", param=at)
        elif field in EMPTY_FIELDS:
            if given not in ([], ""):
                raise UnsupportedFeature(f"{at}: {EMPTY_FIELDS[field]}", param=at)
        else:
            raise RequestError(
                f"{at} is not a known field: a message has role, content, {', '.join(TEXT_FIELDS)}, "
                f"{', '.join(own.values())}",
                param=at,
            )
    content = message.get("content")
    parsed["content"] = "" if content is None and "tool_calls" in parsed else _parse_content(content, where)
    return parsed


def _owner(field: str, own: dict[str, str]) -> str:
    return next(role for role, name in own.items() if name == field)


def _check_result(result: dict[str, Any], calls: list[str | None], where: str) -> None:
    """Refuse a result that belongs to no call; a call without an id may be anybody's."""
    id_ = result.get("tool_call_id")
    at = f"{where}.tool_call_id"
    if not calls:
        raise RequestError(f"{where} is a tool's result, and no message before it has tool_calls", param=where)
    if id_ is not None and id_ not in calls and None not in calls:
        raise RequestError(f"{at}={_short(id_)} is the id of no earlier call: give the id of one", param=at)


def _parse_calls(value: object, where: str) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        raise RequestError(f"{where} is a {_kind(value)}: give a list of calls", param=where)
    return [_parse_call(call, f"{where}[{place}]") for place, call in enumerate(value)]


def _parse_call(call: object, where: str) -> dict[str, Any]:
    if not isinstance(call, dict):
        raise RequestError(f"{where} is a {_kind(call)}: give an object with id, type and function", param=where)
    if call.get("type") not in (None, "function"):
        raise UnsupportedFeature(
            f'{where}.type={_short(call["type"])} is not served: only "function" is', param=f"{where}.type"
        )
    # Clients that put a call together from a stream leave its index in.
    _refuse_unknown(call, ("id", "type", "function", "index"), where)
    function, id_ = call.get("function"), call.get("id")
    if id_ is not None and not isinstance(id_, str):
        raise RequestError(f"{where}.id is a {_kind(id_)}: give a string", param=f"{where}.id")
    if not isinstance(function, dict):
        raise RequestError(
            f"{where}.function is a {_kind(function)}: give an object with name and arguments",
            param=f"{where}.function",
        )
    _refuse_unknown(function, ("name", "arguments"), f"{where}.function")
    name = function.get("name")
    if not isinstance(name, str):
        raise RequestError(f"{where}.function.name is a {_kind(name)}: give a string", param=f"{where}.function.name")
    arguments = _parse_arguments(function.get("arguments"), f"{where}.function.arguments")
    try:
        render_tool_call(name, arguments)
    except RequestError as error:
        field = f"{where}.function.{'name' if error.param == 'name' else 'arguments'}"
        raise RequestError(f"{field}: {error}", param=field) from error
    parsed: dict[str, Any] = {"type": "function", "function": {"name": name, "arguments": arguments}}
    return parsed if id_ is None else {"id": id_, **parsed}


def _parse_arguments(value: object, where: str) -> dict[str, Any]:
    """Return arguments as an object; a function without parameters is often called with nothing at all."""
    if isinstance(value, str):
        try:
            value = json.loads(value, parse_constant=_refuse_constant) if value.strip() else {}
        except (ValueError, RecursionError) as error:
            reason = "nested too deeply" if isinstance(error, RecursionError) else error
            raise RequestError(
                f"{where} is not JSON ({reason}): give the JSON text of an object", param=where
            ) from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise RequestError(f"{where} is a {_kind(value)}: give an object, or its JSON text", param=where)
    level: list[Any] = [value]
    for _ in range(MAX_ARGUMENT_DEPTH):
        level = [part for node in level for part in (node.values() if isinstance(node, dict) else node)]
        level = [part for part in level if isinstance(part, dict | list)]
        if not level:
            return value
    raise RequestError(f"{where} is nested deeper than {MAX_ARGUMENT_DEPTH} levels: flatten it", param=where)


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON number")


def _refuse_unknown(value: dict[Any, Any], known: tuple[str, ...], where: str) -> None:
    for field in value:
        if field not in known:
            raise RequestError(
                f"{where}.{_clip(field)} is not a known field: allowed are {', '.join(known)}",
                param=f"{where}.{_clip(field)}",
            )


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


def _clip(field: object) -> str:
    return str(field)[:60]
