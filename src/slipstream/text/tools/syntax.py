"""The tags of the family's tool calls, found in text that arrives in pieces.

Every tag carries the namespace string in front: `]<]minimax[>[<tool_call>`. Nothing is escaped in this syntax: a tag
inside a value is text only as far as its reader decides so. Not here: what tags mean (elements, parser).
"""

from __future__ import annotations

import re

import msgspec

NAMESPACE = "]<]minimax[>["
BLOCK = "tool_call"
INVOKE = "invoke"
ITEM = "item"
BLANKS = " \t\r\n"

MAX_TAG_CHARS = 256
"""Longest name of a tag, attributes included; what is longer is text."""

_TAG = re.compile(rf"<(/?)([^<>/\r\n][^<>\r\n]{{0,{MAX_TAG_CHARS - 1}}})>")
_TAG_HEAD = re.compile(rf"(?:<[^<>\r\n]{{0,{MAX_TAG_CHARS + 1}}})?\Z")
_FUNCTION = re.compile(r"""invoke\s+name\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'=]+))\s*\Z""")


class Text(msgspec.Struct, frozen=True):
    """Text outside tags; its borders depend on how the stream was cut."""

    text: str


class Marker(msgspec.Struct, frozen=True):
    """A namespace string that no tag follows."""


class Tag(msgspec.Struct, frozen=True):
    """An opening or closing tag.

    Args:
        name: what stands between the brackets, without the slash of a closing tag, exactly as written.
        is_closing: whether the slash was there.
    """

    name: str
    is_closing: bool

    @property
    def source(self) -> str:
        """The tag as written."""
        return f"{NAMESPACE}<{'/' if self.is_closing else ''}{self.name}>"

    @property
    def function(self) -> str | None:
        """The name in `invoke name="…"`, or None for any other tag."""
        found = None if self.is_closing else _FUNCTION.match(self.name)
        return next((name for name in found.groups() if name is not None), None) if found else None


Event = Text | Marker | Tag


def is_element_name(name: str) -> bool:
    """Return whether an element can have this name, so that its tags are read back as written."""
    is_read_back = _TAG.fullmatch(f"<{name}>") is not None and not name.startswith("/")
    return is_read_back and Tag(name, is_closing=False).function is None


class TagReader:
    """Turn pieces of text into text, tags and lone markers; what may become a tag is withheld."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str) -> list[Event]:
        """Return what is certain once the piece is known."""
        text = self._held + piece
        events: list[Event] = []
        start = 0
        while True:
            place = text.find(NAMESPACE, start)
            if place < 0:
                end = _start_of_head(text, start)
                break
            if place > start:
                events.append(Text(text[start:place]))
            start = place + len(NAMESPACE)
            tag = _TAG.match(text, start)
            if tag:
                events.append(Tag(tag[2], is_closing=tag[1] == "/"))
                start = tag.end()
            elif _TAG_HEAD.match(text, start):
                start = end = place
                break
            else:
                events.append(Marker())
        if end > start:
            events.append(Text(text[start:end]))
        self._held = text[end:]
        return events

    def flush(self) -> tuple[str, str]:
        """Return what was withheld at the end: text, and a tag that was cut off (one of them is empty)."""
        held, self._held = self._held, ""
        return ("", held) if held.startswith(NAMESPACE) else (held, "")


def _start_of_head(text: str, start: int) -> int:
    """Return where the end of the text may be the beginning of a namespace string."""
    for place in range(max(start, len(text) - len(NAMESPACE) + 1), len(text)):
        if NAMESPACE.startswith(text[place:]):
            return place
    return len(text)
