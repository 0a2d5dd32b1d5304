"""The state that every matcher of a grammar is copied from, replaced when the library's tables are full.

The library's copies are cheap because they share one table of lexer states, which only grows: long traffic, or one
strange answer, would fill it up and end every answer that follows the same grammar. A new origin has an empty table;
a matcher moves over to it by taking its tokens again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from llguidance import LLMatcher

_FULL_TABLES = "lexer error: too many"


def is_table_full(error: str) -> bool:
    """Return whether a library error goes away with empty tables."""
    return error.startswith(_FULL_TABLES)


class GrammarOrigin:
    """Copies of a grammar before its first token. Safe to use from several threads.

    Args:
        compile_again: returns a new library matcher of the grammar, as slow as the first compilation.
        first: the library's matcher; from here on only copied.
    """

    def __init__(self, compile_again: Callable[[], LLMatcher], first: LLMatcher) -> None:
        self._compile_again = compile_again
        self._state = first
        self._generation = 0
        self._lock = threading.Lock()

    @property
    def generation(self) -> int:
        """How often the tables were replaced."""
        return self._generation

    def copy(self) -> tuple[int, LLMatcher]:
        """Return the generation and a copy. Takes microseconds."""
        with self._lock:
            return self._generation, self._state.deep_copy()

    def renew(self, full: int) -> tuple[int, LLMatcher]:
        """Return a copy of a newer generation than the one whose tables are full; compiles it if nobody has yet.

        Args:
            full: the generation whose tables are full.
        """
        with self._lock:
            if self._generation <= full:
                self._state = self._compile_again()
                self._generation += 1
            return self._generation, self._state.deep_copy()
