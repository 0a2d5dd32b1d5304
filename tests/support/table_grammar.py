"""Constraints without a library: matchers by table, and a compiler that compiles when it is let. Torch-free."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from slipstream.base.errors import RequestError
from slipstream.text.grammar.bitmask import ALLOW_ALL, Mask, pack_tokens
from slipstream.text.grammar.matcher import GrammarFault
from slipstream.wire.grammar import GrammarSpec


class TableMatcher:
    """A constraint by table: which tokens may follow which token; `None` stands before the first.

    Args:
        table: token before -> allowed tokens.
        vocab_size: of the target.
        dies_at: a token behind which the library would give up.
        fails: raise this at every use.
    """

    def __init__(
        self,
        table: dict[int | None, Sequence[int]],
        vocab_size: int,
        *,
        dies_at: int | None = None,
        fails: BaseException | None = None,
    ) -> None:
        self._table = table
        self._vocab_size = vocab_size
        self._dies_at = dies_at
        self._fails = fails
        self._last: int | None = None
        self.accepted: list[int] = []
        self.is_terminated = False

    def fill_masks(self, drafts: Sequence[int], out: Mask) -> int:
        """See LadderMatcher."""
        if self._fails is not None:
            raise self._fails
        out[:] = ALLOW_ALL
        last = self._last
        for row, draft in enumerate((*drafts, -1)):
            if last is not None and last == self._dies_at:
                out[row:] = 0
                if row == 0:
                    raise GrammarFault(f"structured output cannot go on: the table ends at {last}")
                return row
            out[row] = pack_tokens(self._table[last], self._vocab_size)
            if draft not in self._table[last]:
                return row
            last = draft
        return len(drafts)

    def accept(self, tokens: Sequence[int]) -> None:
        """See LadderMatcher."""
        for token in tokens:
            if token not in self._table[self._last]:
                raise GrammarFault(f"structured output cannot go on: token {token} after {self._last}")
            self._last = token
            self.accepted.append(token)

    def rollback(self, num_tokens: int) -> None:
        """See LadderMatcher."""
        del self.accepted[len(self.accepted) - num_tokens :]
        self._last = self.accepted[-1] if self.accepted else None


class TableCompiler:
    """A `MatchingCompiler` of table matchers that compiles when it is let: held specifications wait for `release`.

    Args:
        make: a matcher per request.
    """

    def __init__(self, make: Callable[[], TableMatcher], held: Sequence[GrammarSpec] = ()) -> None:
        self._make = make
        self._held = set(held)
        self.release = threading.Event()
        self.entered = threading.Semaphore(0)
        self.num_closes = 0
        self.compiled: list[GrammarSpec] = []
        self.matchers: list[TableMatcher] = []

    def start(self) -> None:
        """Nothing to make ready."""

    def find(self, spec: GrammarSpec) -> None:
        """Nothing is kept."""

    def compile(self, spec: GrammarSpec) -> GrammarSpec:
        """Return the specification itself; one whose text is `bad` is refused, `panic` is worse."""
        self.entered.release()
        if spec in self._held:
            assert self.release.wait(30)
        if spec.text == "bad":
            raise RequestError("the constraint cannot be used: bad", code="invalid_grammar")
        if spec.text == "panic":
            raise Panic("index out of bounds")
        self.compiled.append(spec)
        return spec

    def match(self, grammar: GrammarSpec, starts: str) -> TableMatcher:
        """Return a new matcher."""
        del grammar, starts
        self.matchers.append(self._make())
        return self.matchers[-1]

    def close(self) -> None:
        """Let everything go."""
        self.num_closes += 1
        self.release.set()


class Panic(BaseException):
    """What a library in another language raises when it breaks: not an Exception."""
