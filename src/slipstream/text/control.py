"""Mark the characters of user text, so that a rendered prompt still tells who wrote what.

A chat template mixes its own control tokens with text of users. If a user's `]~b]` reached the tokenizer as it
stands, it would open a turn. Here every character of user text that could take part in a control token is replaced
by a private-use stand-in before rendering; white space and letters stay, so that a template's own trimming and
comparisons work. After rendering, only characters that the template wrote can form control tokens
(`Tokenizer.encode_marked`), and the stand-ins turn back into plain text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from slipstream.base.errors import RequestError

_THINK_TAGS = re.compile(r"(</?(?:\w+:)?think>)")
_PRIVATE_PLANES = range(0xF0000, 0x10FFFE)


class Marks:
    """Stand-ins for one prompt.

    Args:
        always: characters hidden wherever a user writes them.
        alphabet: every character of the control tokens but white space.
        insides: control tokens without their first and last character.
        first: the first of the code points used as stand-ins; none of them occurs in the prompt's inputs.
    """

    def __init__(self, always: str, alphabet: str, insides: tuple[str, ...], first: int) -> None:
        hide_all = {ord(character): chr(first + place) for place, character in enumerate(alphabet)}
        self._insides = insides
        self._hide_all = hide_all
        self._hide = {ord(character): hide_all[ord(character)] for character in always}
        self.restore: dict[int, str] = {ord(mark): chr(character) for character, mark in hide_all.items()}

    def hide(self, text: str) -> str:
        """Return user text with stand-ins."""
        # HAZARD: a template may wrap user text in brackets of its own ("<" + name + ">"); then a text that fits
        # inside a control token completes it without a single bracket from the user.
        bare = text.strip()
        if bare and any(bare in inside for inside in self._insides):
            return text.translate(self._hide_all)
        return text.translate(self._hide)

    def hide_own_words(self, text: str) -> str:
        """Return text of the assistant with stand-ins, think tags left for the template to find."""
        parts = _THINK_TAGS.split(text)
        return "".join(part if place % 2 else self.hide(part) for place, part in enumerate(parts))

    def show(self, text: str) -> str:
        """Return text with the real characters back."""
        return text.translate(self.restore)


class ControlText:
    """What the control tokens of one tokenizer are made of.

    Args:
        strings: the control tokens as text.
    """

    def __init__(self, strings: Iterable[str]) -> None:
        self._strings = tuple(string for string in strings if string.strip())
        self._alphabet = "".join(sorted({c for string in self._strings for c in string if not c.isspace()}))
        always: set[str] = set()
        for string in self._strings:
            bare = {c for c in string if not c.isspace()}
            always |= {c for c in bare if not c.isalnum()} or bare
        self._always = "".join(sorted(always))
        self._insides = tuple(string[1:-1] for string in self._strings)

    def occurs_in(self, text: str) -> bool:
        """Return whether a control token occurs in the text."""
        return any(string in text for string in self._strings)

    def marks(self, inputs: Iterable[str]) -> Marks:
        """Return stand-ins that occur in none of the inputs.

        Raises:
            RequestError: the inputs use up the private-use planes.
        """
        size = len(self._alphabet)
        taken = {ord(c) for text in inputs if not text.isascii() for c in text if ord(c) >= _PRIVATE_PLANES.start}
        first = _PRIVATE_PLANES.start
        for code_point in sorted(taken):
            if code_point >= first + size:
                break
            first = code_point + 1
        if first + size > _PRIVATE_PLANES.stop:
            raise RequestError("the text uses too many private-use characters: send text without them")
        return Marks(self._always, self._alphabet, self._insides, first)
