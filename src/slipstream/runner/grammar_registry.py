"""The constraints of live requests by request id, and how far the text of each has been followed.

A request's entry lives from its acceptance to its end, through preemption. It belongs to one thread, the engine's
loop. Torch-free. Not here: compiling (`text.grammar`), rows and steps (grammar_rows).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from slipstream.base.errors import EngineError
from slipstream.text.grammar.bitmask import ALLOW_ALL, Mask
from slipstream.text.grammar.matcher import GrammarFault, LadderMatcher

_Result = TypeVar("_Result")


@dataclass(slots=True)
class _Entry:
    start: Callable[[], LadderMatcher]
    matcher: LadderMatcher | None = None
    fault: str | None = None


class GrammarRegistry:
    """Compiled grammars and matchers of the requests that run or wait."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, request_id: object) -> bool:
        return request_id in self._entries

    def put(self, request_id: str, start: Callable[[], LadderMatcher]) -> None:
        """Take in a request whose grammar is compiled.

        Args:
            request_id: unique among the live ones.
            start: returns a matcher before the answer's first token.
        """
        self._entries[request_id] = _Entry(start)

    def drop(self, request_id: str) -> None:
        """Forget a request that ended; unknown ids are ignored."""
        self._entries.pop(request_id, None)

    def restart(self, request_id: str, tokens: Sequence[int]) -> None:
        """Follow a request's text from its beginning, as its row starts or starts again.

        A text that does not fit shows at the next `follow`.

        Args:
            request_id: of a live request.
            tokens: returned before.

        Raises:
            EngineError: there is no such request.
        """
        entry = self._entry(request_id)
        entry.matcher = entry.fault = None
        try:
            entry.matcher = _guarded(entry.start)
            _call(entry, lambda matcher: matcher.accept(tokens))
        except GrammarFault as fault:
            entry.fault = str(fault)

    def follow(self, request_id: str, tokens: Sequence[int], drafts: Sequence[int], out: Mask) -> int:
        """Take in what was emitted, and write what may come next at every ladder row.

        Args:
            request_id: of a live request whose row has started.
            tokens: emitted since the last call.
            drafts: d1..dK; NO_TOKEN where there is no proposal.
            out: [len(drafts) + 1, num_words] int32.

        Returns:
            How many drafts may be accepted at most: all of them, or fewer where the grammar cannot be followed behind
            one. Then the step ends with that one, and the next step says why, as it would have without drafts.

        Raises:
            GrammarFault: the constraint cannot go on; `out` allows nothing, now and at any later call.
            EngineError: there is no such request.
        """
        entry = self._entry(request_id)
        try:
            _call(entry, lambda matcher: matcher.accept(tokens))
            num_allowed = _call(entry, lambda matcher: matcher.fill_masks(drafts, out))
        except GrammarFault as fault:
            entry.fault = str(fault)
            out[:] = 0
            raise
        if num_allowed and not out[num_allowed].any():
            out[num_allowed:] = ALLOW_ALL
            return num_allowed - 1
        return len(drafts)

    def _entry(self, request_id: str) -> _Entry:
        entry = self._entries.get(request_id)
        if entry is None:
            raise EngineError(f"request {request_id!r} has a constraint, but no compiled grammar")
        return entry


def _call(entry: _Entry, use: Callable[[LadderMatcher], _Result]) -> _Result:
    matcher = entry.matcher
    if entry.fault is not None or matcher is None:
        raise GrammarFault(entry.fault or "structured output cannot go on: its row has not started")
    return _guarded(lambda: use(matcher))


def _guarded(call: Callable[[], _Result]) -> _Result:
    """Call the library; whatever goes wrong in it is the end of one request."""
    try:
        return call()
    except (GrammarFault, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        # A panic of the library is not an Exception.
        raise GrammarFault(
            f"structured output cannot go on: its library failed ({type(error).__name__}: {error})"
        ) from error
