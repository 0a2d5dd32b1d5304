"""An answer as a row of parts, one after the other: reasoning, texts and calls, as block-wise protocols show it.

A part is whole before the next begins. Text that a model writes after its first call waits for the end of the answer,
because it may stand inside a call: it is one text part behind the last call. Not here: shapes of a protocol.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from slipstream.frontend.answer_stream import AnswerDelta

PartKind = Literal["reasoning", "text", "call"]


class Part(msgspec.Struct, kw_only=True):
    """One part of an answer, so far.

    Args:
        index: its place in the answer.
        kind: what it is.
        pieces: of its text, as they came.
        call_id, name: of a call.
    """

    index: int
    kind: PartKind
    pieces: list[str] = []
    call_id: str = ""
    name: str = ""

    @property
    def text(self) -> str:
        """The reasoning, the text, or the JSON text of a call's arguments."""
        return "".join(self.pieces)

    @property
    def is_cut(self) -> bool:
        """Whether it is a call whose arguments end before they are whole."""
        if self.kind != "call":
            return False
        try:
            msgspec.json.decode(self.text)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return True
        return False


class PartEvent(msgspec.Struct, frozen=True):
    """What happens to a part: it begins, gets more text, or ends.

    Args:
        what: which of these.
        part: the part.
        text: with `more`, what was added.
    """

    what: Literal["begin", "more", "end"]
    part: Part
    text: str = ""


class AnswerParts:
    """Take the deltas of one answer; `parts` are those that have begun."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.num_reasoning_tokens = 0
        self._open: Part | None = None
        self._num_calls = 0
        self._late: list[str] = []
        self._events: list[PartEvent] = []

    def feed(self, delta: AnswerDelta) -> list[PartEvent]:
        """Take the next delta; the one with a finish_reason ends the last part."""
        self.num_reasoning_tokens += sum(token.part == "reasoning" for token in delta.tokens)
        self._say("reasoning", delta.reasoning)
        if self._num_calls:
            self._late.append(delta.content)
        else:
            self._say("text", delta.content)
        for call in delta.calls:
            if call.name is not None:
                self._begin("call", call_id=call.id or "", name=call.name)
                self._num_calls += 1
            self._grow(call.arguments)
        if delta.finish_reason is not None:
            self._say("text", "".join(self._late))
            self._end()
        events, self._events = self._events, []
        return events

    def _say(self, kind: PartKind, text: str) -> None:
        if not text:
            return
        if self._open is None or self._open.kind != kind:
            self._begin(kind)
        self._grow(text)

    def _begin(self, kind: PartKind, *, call_id: str = "", name: str = "") -> None:
        self._end()
        self._open = Part(index=len(self.parts), kind=kind, call_id=call_id, name=name)
        self.parts.append(self._open)
        self._events.append(PartEvent("begin", self._open))

    def _grow(self, text: str) -> None:
        if text and self._open is not None:
            self._open.pieces.append(text)
            self._events.append(PartEvent("more", self._open, text))

    def _end(self) -> None:
        if self._open is not None:
            self._events.append(PartEvent("end", self._open))
            self._open = None
