"""A grammar that begins where reasoning ends, wherever in a run of tokens that is.

The end of reasoning may lie among the accepted tokens of a step or among its drafts. In every case the row right
after it is the grammar's first, and the grammar has seen exactly the tokens after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from slipstream.text.grammar.bitmask import ALLOW_ALL, Mask, check_rows, is_allowed, num_words
from slipstream.text.grammar.boundary import OVERRUN, ReasoningEnd
from slipstream.text.grammar.matcher import GrammarFault, GrammarMatcher
from slipstream.wire.ids import NO_TOKEN


class DeferredMatcher:
    """A matcher for an answer that begins inside reasoning.

    While reasoning goes on everything is allowed, except end tokens, which would leave the answer without what was
    asked for, and the few tokens that would complete the end marker and carry more text with them.

    Args:
        matcher: follows the part after the marker; has accepted nothing yet.
        end: recognises the marker.
    """

    def __init__(self, matcher: GrammarMatcher, end: ReasoningEnd) -> None:
        self._matcher = matcher
        self._end = end
        # The automaton's state at the start and after each token up to the marker, for rollback.
        self._states = bytearray(1)
        self._fault: str | None = None

    @property
    def is_terminated(self) -> bool:
        """Whether an end token was accepted where the grammar may end."""
        return self._matcher.is_terminated

    @property
    def has_begun(self) -> bool:
        """Whether reasoning has ended."""
        return self._states[-1] == self._end.passed

    def fill_masks(self, drafts: Sequence[int], out: Mask) -> int:
        """See LadderMatcher."""
        check_rows(out, len(drafts) + 1, num_words(self._end.vocab_size))
        if self._fault is not None:
            out[:] = 0
            raise GrammarFault(self._fault)
        row, state = 0, self._states[-1]
        for row, draft in enumerate((*drafts, NO_TOKEN)):
            if state == self._end.passed:
                return row + self._matcher.fill_masks(drafts[row:], out[row:])
            out[row] = self._end.mask(state)
            if not is_allowed(out[row], draft, self._end.vocab_size):
                break
            state = self._end.advance(state, draft)
        out[row + 1 :] = ALLOW_ALL
        return row

    def accept(self, tokens: Sequence[int]) -> None:
        """See LadderMatcher."""
        if self._fault is not None:
            raise GrammarFault(self._fault)
        for place, token in enumerate(tokens):
            if self.has_begun:
                self._matcher.accept(tokens[place:])
                return
            state = self._end.advance(self._states[-1], token)
            if state == OVERRUN or not 0 <= token < self._end.vocab_size:
                self._fail(f"token {token} cannot come where reasoning ends")
            self._states.append(state)

    def rollback(self, num_tokens: int) -> None:
        """See LadderMatcher."""
        if self._fault is not None:
            raise GrammarFault(self._fault)
        inside = self._matcher.num_accepted
        before = len(self._states) - 1
        if not 0 <= num_tokens <= inside + before:
            self._fail(f"{num_tokens} tokens cannot be taken back: {inside + before} were accepted")
        self._matcher.rollback(min(num_tokens, inside))
        if num_tokens > inside:
            del self._states[-(num_tokens - inside) :]

    def forced_tokens(self) -> list[int]:
        """Return the tokens that must come next, because the grammar leaves no choice of text. Often none."""
        return self._matcher.forced_tokens() if self.has_begun else []

    def _fail(self, reason: str) -> NoReturn:
        self._fault = f"structured output cannot go on: {reason}"
        raise GrammarFault(self._fault)
