"""What another protocol says, checked in the shape that every endpoint shares; errors keep the caller's own places."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from slipstream.base.errors import RequestError
from slipstream.text.messages import parse_messages
from slipstream.text.tools.schema import ToolChoice, ToolSet, parse_tool_choice, parse_tools

_PLACE = re.compile(r"messages\[(\d+)\]")


def check_messages(messages: Sequence[tuple[str, dict[str, Any]]], names: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return messages as `parse_messages` does.

    Args:
        messages: each with the place that it came from.
        names: what the caller calls a field that has another name here.

    Raises:
        RequestError: a message is not one; the error names the place it came from.
    """
    try:
        return parse_messages([message for _, message in messages])
    except RequestError as error:
        place = _PLACE.match(error.param or "")
        if place is None:
            raise
        origin = messages[int(place[1])][0]
        raise renamed(error, {place[0]: origin, **names}) from error


def check_tools(tools: Sequence[dict[str, Any]], names: Mapping[str, str]) -> ToolSet:
    """Return tools as `parse_tools` does; see `check_messages`.

    Args:
        tools: the functions, each with the fields of one.
        names: what the caller calls a field that has another name here.
    """
    try:
        return parse_tools([{"type": "function", "function": tool} for tool in tools])
    except RequestError as error:
        raise renamed(error, {".function": "", **names}) from error


def check_choice(choice: object, tools: ToolSet) -> ToolChoice:
    """Return a choice as `parse_tool_choice` does; see `check_messages`.

    Args:
        choice: in the shared shape.
        tools: what can be chosen.
    """
    try:
        return parse_tool_choice(choice, tools)
    except RequestError as error:
        raise renamed(error, {".function": ""}) from error


@contextlib.contextmanager
def naming(names: Mapping[str, str]) -> Iterator[None]:
    """Call a field in an error about it what the caller calls it.

    Args:
        names: what the caller calls a field that has another name here.
    """
    try:
        yield
    except RequestError as error:
        field = error.param or ""
        if field not in names:
            raise
        raise renamed(error, {field: names[field]}) from error


def renamed(error: RequestError, names: Mapping[str, str]) -> RequestError:
    """Return an error of the same class with other names in it.

    Args:
        error: whose text and field are changed.
        names: what is written in place of what.
    """
    message, param = str(error), error.param
    for old, new in names.items():
        message = message.replace(old, new)
        param = None if param is None else param.replace(old, new)
    return type(error)(message, param=param, code=error.code)
