"""Cut a text into pieces of 1 to 64 characters, for parsers whose result must not depend on how text arrives."""

from __future__ import annotations

from hypothesis import strategies as st

sizes = st.lists(st.integers(1, 64), min_size=1, max_size=40) | st.integers(1, 64).map(lambda size: [size])


def cut(text, piece_sizes):
    """Return the pieces; the sizes repeat until the text is used up."""
    pieces, start, turn = [], 0, 0
    while start < len(text):
        size = piece_sizes[turn % len(piece_sizes)]
        pieces.append(text[start : start + size])
        start, turn = start + size, turn + 1
    return pieces
