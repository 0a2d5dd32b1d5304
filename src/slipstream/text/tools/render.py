"""Write tool calls in the family's syntax: the inverse of the parser, as far as the syntax has one.

The syntax escapes nothing. What it cannot carry at all is refused here:

- a member name that is empty, longer than a tag may be, begins with a slash, holds an angle bracket or a line break,
  or reads like the opening of a call;
- a string that holds the closing tag, marker included, of an element it stands in.

What it carries, but only a schema brings back: numbers and words that are strings (`"12"`, `"true"`, `"null"`), empty
lists and objects, strings that begin with a tag. What it does not carry: null; members that are null are left out, a
null in a list becomes an empty item.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from slipstream.base.errors import RequestError
from slipstream.text.tools.syntax import BLOCK, INVOKE, ITEM, MAX_TAG_CHARS, Tag, TagReader, is_element_name


def render_tool_call(name: str, arguments: Mapping[str, Any]) -> str:
    """Return a block with one call.

    Args:
        name: the function's name.
        arguments: JSON values by name.

    Raises:
        RequestError: a value that the syntax cannot carry.
    """
    return render_tool_calls([(name, arguments)])


def render_tool_calls(calls: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """Return a block with several calls; as `render_tool_call`."""
    body = "".join(_call(name, arguments) for name, arguments in calls)
    return _tag(BLOCK) + body + _tag(BLOCK, is_closing=True)


def _call(name: str, arguments: Mapping[str, Any]) -> str:
    header = f'{INVOKE} name="{name}"'
    read_back = TagReader().feed(_tag(header))
    if read_back != [Tag(header, is_closing=False)] or Tag(header, is_closing=False).function != name:
        raise RequestError(f"a call of {_short(name)} cannot be written: the name needs plain characters", param="name")
    return _tag(header) + _members(arguments, (BLOCK, INVOKE)) + _tag(INVOKE, is_closing=True)


def _members(members: Mapping[str, Any], inside: tuple[str, ...]) -> str:
    return "".join(_element(key, value, inside) for key, value in members.items() if value is not None)


def _element(name: str, value: Any, inside: tuple[str, ...]) -> str:
    if not is_element_name(name):
        raise RequestError(
            f"a member named {_short(name)} cannot be written as a tag: use 1 to {MAX_TAG_CHARS} characters, no angle "
            "brackets or line breaks, no slash at the start",
            param="arguments",
        )
    return _tag(name) + _value(value, (*inside, name)) + _tag(name, is_closing=True)


def _value(value: Any, inside: tuple[str, ...]) -> str:
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return _members(value, inside)
    if isinstance(value, list | tuple):
        return "".join(_element(ITEM, part, inside) for part in value)
    if isinstance(value, str):
        for name in inside:
            if _tag(name, is_closing=True) in value:
                raise RequestError(
                    f"the string for {_short(inside[-1])} holds the closing tag of {_short(name)}, which would end it: "
                    "nothing is escaped in this syntax",
                    param="arguments",
                )
        return value
    if isinstance(value, float) and not math.isfinite(value):
        raise RequestError(f"{value} for {_short(inside[-1])} is no JSON number: give a finite one", param="arguments")
    return json.dumps(value)


def _tag(name: str, *, is_closing: bool = False) -> str:
    return Tag(name, is_closing=is_closing).source


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "…")
