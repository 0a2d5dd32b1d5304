"""A schema's `pattern` as a regular expression for a whole text.

The standard means ECMAScript: a pattern may match anywhere in the text unless it is anchored, and digits and word
characters are ASCII. Not here: whether the grammar library knows every construct in it; it refuses what it does not.
"""

from __future__ import annotations

import re

_PIECE = re.compile(r"\\.|.", re.DOTALL)
_ASCII = {r"\d": "0-9", r"\w": "A-Za-z0-9_"}
_ASCII_OUTSIDE = {r"\d": "[0-9]", r"\w": "[A-Za-z0-9_]", r"\D": "[^0-9]", r"\W": "[^A-Za-z0-9_]"}


def whole_text(pattern: str) -> str | None:
    """Return a regex that a text matches as a whole if and only if the pattern matches somewhere in it.

    Args:
        pattern: in the syntax of ECMAScript.

    Returns:
        The regex, or None if anchors stand anywhere but at the very beginning and end.
    """
    pieces: list[str] = _PIECE.findall(pattern)
    begins, ends = pieces[:1] == ["^"], len(pieces) > 1 and pieces[-1] == "$"
    pieces = pieces[begins : len(pieces) - ends]
    body: list[str] = []
    is_class, depth = False, 0
    for piece in pieces:
        if is_class:
            is_class = piece != "]"
            piece = _ASCII.get(piece, piece)
        elif piece in "^$" or (piece == "|" and not depth and (begins or ends)) or piece in (r"\b", r"\B"):
            return None
        else:
            is_class = piece == "["
            depth += (piece == "(") - (piece == ")")
            piece = _ASCII_OUTSIDE.get(piece, piece)
        body.append(piece)
    anything = "(?s:.)*"
    return f"{'' if begins else anything}(?:{''.join(body)}){'' if ends else anything}"
