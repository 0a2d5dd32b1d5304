"""One value written as text, turned into JSON while it arrives.

Text is a string, character for character, unless it is JSON of another allowed type:

- A place that allows only strings streams from the first character.
- A place that allows strings among others waits while the text may still be a literal (null, true, a number) or a
  container (`{`, `[`) of an allowed type, and streams as a string as soon as it cannot.
- A place that allows no string takes any JSON value, true, false and null also in other spellings (True, None). What
  is nothing of that kind is a string all the same: a wrong type is seen by the tool, a lost value is not.

A JSON string literal is never read as one: strings are written bare here, so quotation marks are part of the value.
White space around other values does not count; in strings it stays.
"""

from __future__ import annotations

import json
import re
from typing import NoReturn

from slipstream.text.tools.shapes import TYPES
from slipstream.text.tools.syntax import BLANKS

MAX_LITERAL_CHARS = 1024
"""Longest number; what is longer is a string."""

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)\Z")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?\Z")
_WHOLE = re.compile(r"(-?(?:0|[1-9][0-9]*))\.0+\Z")
_NUMBER_HEAD = re.compile(r"-?[0-9]*(?:\.[0-9]*)?(?:[eE][+-]?[0-9]*)?[ \t\r\n]*\Z")
_CONTAINERS = frozenset({"array", "object"})
_WORDS = {"null": "null", "true": "boolean", "false": "boolean"}
_OTHER_SPELLINGS = {"none": "null"}


class TextValue:
    """Text of one value, in pieces; `feed` and `close` return the JSON text that is certain.

    Args:
        types: the types that the place allows.
    """

    def __init__(self, types: frozenset[str]) -> None:
        self._types = types
        self._allows_string = "string" in types
        self._others = types - {"string"} if self._allows_string else TYPES - {"string"}
        self._is_string = False
        self._held: list[str] = []
        self._head = ""

    @property
    def is_text(self) -> bool:
        """Whether tags are text here: behind text that is not blank, or where strings may stand and no container."""
        return bool(self._head) or (self._allows_string and not self._others & _CONTAINERS)

    def feed(self, text: str) -> str:
        """Take the next piece of the value."""
        if self._is_string:
            return escape(text)
        self._held.append(text)
        if len(self._head) <= MAX_LITERAL_CHARS:
            self._head = (self._head + text).lstrip(BLANKS)[: MAX_LITERAL_CHARS + 1]
        if not self._others or (self._head and not self._may_be_other()):
            self._is_string = True
            held, self._held = self._held, []
            return '"' + escape("".join(held))
        return ""

    def close(self) -> str:
        """Return the rest: the value is complete."""
        if self._is_string:
            return '"'
        text = "".join(self._held)
        bare = text.strip(BLANKS)
        found = self._blank() if not bare else self._other(bare)
        return found if found is not None else f'"{escape(text)}"'

    def _blank(self) -> str | None:
        """Return what an empty place stands for: the renderer writes an empty list or object, and null, as nothing."""
        if self._allows_string:
            return None
        empty = {"array": "[]", "object": "{}", "null": "null"}
        return next((text for name, text in empty.items() if name in self._types), None)

    def _other(self, bare: str) -> str | None:
        """Return the JSON text of a value that is no string, or None."""
        kind = _WORDS.get(bare)
        if kind is None and not self._allows_string:
            word = _OTHER_SPELLINGS.get(bare.lower(), bare.lower())
            kind, bare = _WORDS.get(word), word if word in _WORDS else bare
        if kind is not None:
            return bare if kind in self._others else None
        if bare[0] in "{[":
            kind = "object" if bare[0] == "{" else "array"
            return bare if kind in self._others and _is_json(bare) else None
        if "number" not in self._types and "integer" in self._types and (whole := _WHOLE.match(bare)):
            return whole[1] if not self._allows_string else None
        pattern = _NUMBER if "number" in self._others else _INTEGER
        is_allowed = bool({"number", "integer"} & self._others) and len(bare) <= MAX_LITERAL_CHARS
        return bare if is_allowed and pattern.match(bare) else None

    def _may_be_other(self) -> bool:
        """Return whether more text could make this a value that is no string."""
        head, others = self._head, self._others
        if head[0] in "{[":
            return ("object" if head[0] == "{" else "array") in others
        if len(head) > MAX_LITERAL_CHARS:
            return False
        if {"number", "integer"} & others and _NUMBER_HEAD.match(head):
            return True
        written = head.rstrip(BLANKS)
        is_over = len(written) < len(head)
        word = written if self._allows_string else written.lower()
        words = [word for word, kind in _WORDS.items() if kind in others]
        words += [] if self._allows_string else list(_OTHER_SPELLINGS)
        return any(whole == word or (not is_over and whole.startswith(word)) for whole in words)


def escape(text: str) -> str:
    """Return the text as it stands inside a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _is_json(text: str) -> bool:
    try:
        json.loads(text, parse_constant=_refuse, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)
