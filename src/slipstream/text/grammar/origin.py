"""The state that every matcher of a grammar is copied from, replaced when the library's tables are full.

The library's copies are cheap because they share one table of lexer states, which only grows: long traffic, or one
strange answer, would fill it up and end every answer that follows the same grammar. A new origin has an empty table;
a matcher moves over to it by taking its tokens again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from llguidance import LLMatcher

MAX_RENEWAL_S = 0.1
"""Longest compilation that a matcher may wait for in the middle of its text; every other request waits with it."""

_FULL_TABLES = "lexer error: too many"


def is_table_full(error: str) -> bool:
    """Return whether a library error goes away with empty tables."""
    return error.startswith(_FULL_TABLES)


class GrammarOrigin:
    """Copies of a grammar before its first token. Safe to use from several threads.

    Args:
        compile_again: returns a new library matcher of the grammar, as slow as the first compilation.
        first: the library's matcher; from here on only copied.
        compile_s: how long the first compilation took, in seconds.
    """

    def __init__(self, compile_again: Callable[[], LLMatcher], first: LLMatcher, compile_s: float = 0.0) -> None:
        self._compile_again = compile_again
        self._compile_s = compile_s
        self._is_worn_out = False
        self._state = first
        self._generation = 0
        self._lock = threading.Lock()

    @property
    def generation(self) -> int:
        """How often the tables were replaced."""
        return self._generation

    @property
    def is_worn_out(self) -> bool:
        """Whether the tables are full and take too long to replace: for who comes next, compile the grammar anew."""
        return self._is_worn_out

    def copy(self) -> tuple[int, LLMatcher]:
        """Return the generation and a copy. Takes microseconds."""
        with self._lock:
            return self._generation, self._state.deep_copy()

    def renew(self, full: int) -> tuple[int, LLMatcher] | None:
        """Return a copy of a newer generation than the one whose tables are full; compiles it if nobody has yet.

        Args:
            full: the generation whose tables are full.

        Returns:
            None if compiling takes too long for the middle of a text.
        """
        with self._lock:
            if self._generation <= full:
                if self._compile_s > MAX_RENEWAL_S:
                    self._is_worn_out = True
                    return None
                self._state = self._compile_again()
                self._generation += 1
            return self._generation, self._state.deep_copy()
