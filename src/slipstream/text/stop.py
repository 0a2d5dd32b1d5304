"""Find stop strings in text that arrives in pieces, and say which token completed one.

One pass of an Aho-Corasick automaton: the work is linear in the text, however it is cut. Not here: stop token ids,
which the scheduler cuts at.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

from slipstream.base.errors import RequestError

MAX_STOP_CHARS = 16_384
"""Most characters that the stop strings of one request may have together."""


class StopStep(msgspec.Struct, frozen=True):
    """What some fed pieces amount to.

    Args:
        text: text that is now certain to be returned.
        num_kept: fed pieces (tokens) that belong to the result: all of them, or those up to and including the one
            that completed the stop string.
        matched: the stop string that ended the text, or None.
        pieces: the same text by the fed piece that made it certain; one per kept piece, possibly empty.
    """

    text: str
    num_kept: int
    matched: str | None = None
    pieces: tuple[str, ...] = ()


class StopStrings:
    """Watch a stream for the first stop string that is completed; the longest wins if several are at once.

    Text that may still turn out to be the head of a stop string is held back, and nothing more.

    Args:
        stops: the strings; may be empty.
        include_in_output: keep the matched string at the end of the text.

    Raises:
        RequestError: a string is empty, or they are too long together.
    """

    def __init__(self, stops: Sequence[str], *, include_in_output: bool = False) -> None:
        if sum(map(len, stops)) > MAX_STOP_CHARS:
            raise RequestError(
                f"stop: the strings have {sum(map(len, stops))} characters together; at most {MAX_STOP_CHARS} "
                "are allowed",
                param="stop",
            )
        if not all(stops):
            raise RequestError("stop: an empty string would end every text at once: leave it out", param="stop")
        self._include = include_in_output
        self._states = _build(stops)
        self._state = 0
        self._held = ""
        self.matched: str | None = None
        self.num_transitions = 0

    def feed(self, pieces: Sequence[str]) -> StopStep:
        """Take the pieces of the next tokens, in order; after a match everything is dropped.

        Args:
            pieces: one string per token.
        """
        if self.matched is not None:
            return StopStep("", 0, self.matched)
        if len(self._states) == 1:
            return StopStep("".join(pieces), len(pieces), pieces=tuple(pieces))
        certain: list[str] = []
        for piece in pieces:
            matched = self._take(piece, certain)
            if matched is not None:
                return StopStep("".join(certain), len(certain), matched, tuple(certain))
        return StopStep("".join(certain), len(pieces), pieces=tuple(certain))

    def _take(self, piece: str, certain: list[str]) -> str | None:
        """Take one piece; add the text that it makes certain, and return the stop string that it completes."""
        text = self._held + piece
        for place, character in enumerate(piece, len(self._held) + 1):
            matched = self._advance(character)
            if matched is not None:
                self.matched, self._held = matched, ""
                certain.append(text[: place if self._include else place - len(matched)])
                return matched
        num_certain = len(text) - self._states[self._state].depth
        certain.append(text[:num_certain])
        self._held = text[num_certain:]
        return None

    def flush(self) -> str:
        """Return the text held back, because the stream ended without completing a stop string."""
        held, self._held, self._state = self._held, "", 0
        return held

    def _advance(self, character: str) -> str | None:
        states, here = self._states, self._state
        while True:
            self.num_transitions += 1
            following = states[here].children.get(character)
            if following is not None:
                self._state = following
                return states[following].output
            if here == 0:
                self._state = 0
                return None
            here = states[here].fallback


class _State:
    """A node of the automaton: the text since some point equals the first `depth` characters of a stop string."""

    __slots__ = ("children", "depth", "fallback", "output")

    def __init__(self, depth: int) -> None:
        self.children: dict[str, int] = {}
        self.fallback = 0
        self.depth = depth
        self.output: str | None = None


def _build(stops: Sequence[str]) -> list[_State]:
    states = [_State(0)]
    for stop in stops:
        here = 0
        for character in stop:
            following = states[here].children.get(character)
            if following is None:
                following = states[here].children[character] = len(states)
                states.append(_State(states[here].depth + 1))
            here = following
        states[here].output = stop
    queue = deque(states[0].children.values())
    while queue:
        here = queue.popleft()
        state = states[here]
        if state.output is None:
            state.output = states[state.fallback].output
        for character, following in state.children.items():
            fallback = state.fallback
            while fallback and character not in states[fallback].children:
                fallback = states[fallback].fallback
            states[following].fallback = states[fallback].children.get(character, 0)
            queue.append(following)
    return states
