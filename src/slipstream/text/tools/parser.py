"""Split content into text and tool calls while it arrives.

Text outside calls is content; white space between it and a block of calls is dropped. Inside a block, stray text is
content as well, and never costs an argument. What the model leaves out is understood: the block's opening or closing
tag, the closing tag of a call before the next one. Names of functions are reported as written, known or not.

An answer that ends inside a call leaves it unfinished: what was streamed stays as it is, which is not valid JSON, so
that no tool runs with half a value; the delta of `flush` says which text would complete it. Not here: reasoning (a
call inside reasoning is reasoning), and how elements become JSON (elements, values).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from slipstream.text.tools.elements import Arguments
from slipstream.text.tools.shapes import Shape
from slipstream.text.tools.syntax import BLANKS, BLOCK, NAMESPACE, Event, Marker, Tag, TagReader, Text

_SURE_HEAD = NAMESPACE[:3]
"""So much of the marker no ordinary text ends with."""


class CallDelta(msgspec.Struct, frozen=True):
    """More of one call.

    Args:
        index: place of the call in the answer, from 0.
        arguments: more of the JSON text of its arguments.
        id: with the first delta of a call, its id.
        name: with the first delta of a call, the function's name.
    """

    index: int
    arguments: str
    id: str | None = None
    name: str | None = None


class UnfinishedCall(msgspec.Struct, frozen=True):
    """A call that the answer's end cut off.

    Args:
        index: place of the call in the answer.
        closing: the text that would make its arguments valid JSON, with what was still withheld of a last value.
    """

    index: int
    closing: str


class ToolDelta(msgspec.Struct, frozen=True):
    """What a fed piece amounts to.

    Args:
        content: text that is certainly content.
        calls: more of calls, in order, at most one entry per call.
        unfinished: from `flush` only, the call that was cut off, or None.
    """

    content: str = ""
    calls: tuple[CallDelta, ...] = ()
    unfinished: UnfinishedCall | None = None


class ToolCallParser:
    """Take the content of one answer, in pieces of any size.

    However the text is cut, the deltas plus `flush` join to the same content and calls.

    Args:
        parameters: the JSON schema of each known function's parameters, by name (`schema.ToolSet.parameters`).
        new_id: returns the id of the next call.
    """

    def __init__(self, parameters: Mapping[str, Mapping[str, Any]], new_id: Callable[[], str]) -> None:
        self.num_calls = 0
        self._parameters = parameters
        self._new_id = new_id
        self._reader = TagReader()
        self._is_in_block = False
        self._is_behind_tag = False
        self._call: Arguments | None = None
        self._blanks: list[str] = []
        self._content: list[str] = []
        self._deltas: list[CallDelta] = []

    def feed(self, piece: str) -> ToolDelta:
        """Take the next piece of text."""
        for event in self._reader.feed(piece):
            self._on(event)
        self._collect()
        return self._delta(None)

    def flush(self, *, is_own_end: bool = True) -> ToolDelta:
        """Return what was withheld, because the answer is over.

        A tag that was cut off is dropped: it shows a reader nothing but markup.

        Args:
            is_own_end: whether the model ended the answer; if not, what is likely the beginning of a tag's marker is
                dropped as well.
        """
        text, tag = self._reader.flush()
        if tag or (not is_own_end and text.startswith(_SURE_HEAD)):
            # As in front of a tag that is whole: white space before it goes with it.
            self._is_behind_tag = True
        elif text:
            self._on(Text(text))
        self._collect()
        unfinished = None
        if self._call is not None:
            self._say(self._call.close())
            unfinished = UnfinishedCall(self.num_calls - 1, self._call.take())
        elif not self._is_behind_tag:
            self._content += self._blanks
        self._blanks.clear()
        return self._delta(unfinished)

    def _delta(self, unfinished: UnfinishedCall | None) -> ToolDelta:
        delta = ToolDelta("".join(self._content), tuple(self._deltas), unfinished)
        self._content.clear()
        self._deltas.clear()
        return delta

    def _on(self, event: Event) -> None:
        if isinstance(event, Tag) and self._is_structure(event):
            self._on_structure(event)
        elif self._call is not None:
            self._pass_on(self._call, event)
        elif isinstance(event, Text):
            self._say(event.text)
        else:
            self._say(NAMESPACE if isinstance(event, Marker) else event.source)

    def _is_structure(self, tag: Tag) -> bool:
        """Return whether the tag is one of a block or the opening of a call, rather than an element or text."""
        is_invoke = tag.function is not None
        if tag.name != BLOCK and not is_invoke:
            return False
        if self._call is None:
            return self._is_in_block or not tag.is_closing
        if tag.is_closing:
            return not self._call.names_open(BLOCK)
        return not self._call.takes_tags_as_text and (is_invoke or not self._call.declares(BLOCK))

    def _on_structure(self, tag: Tag) -> None:
        self._blanks.clear()
        self._is_behind_tag = True
        if self._call is not None:
            self._say(self._call.close())
            self._end_call()
        self._is_in_block = not tag.is_closing
        name = tag.function
        if name is not None:
            self._call = Arguments(Shape.of(self._parameters.get(name)))
            self._deltas.append(CallDelta(self.num_calls, "", self._new_id(), name))
            self.num_calls += 1

    def _pass_on(self, call: Arguments, event: Event) -> None:
        left = call.on(event)
        if not isinstance(event, Text):
            self._blanks.clear()
            self._is_behind_tag = True
        self._say(left)
        if call.is_over:
            self._end_call()

    def _end_call(self) -> None:
        self._collect()
        self._call = None

    def _collect(self) -> None:
        """Move what the open call has written into its delta."""
        more = self._call.take() if self._call is not None else ""
        index = self.num_calls - 1
        if more and self._deltas and self._deltas[-1].index == index:
            last = self._deltas[-1]
            self._deltas[-1] = CallDelta(index, last.arguments + more, last.id, last.name)
        elif more:
            self._deltas.append(CallDelta(index, more))

    def _say(self, text: str) -> None:
        """Add to the content; white space at its end waits for more text."""
        bare = text.rstrip(BLANKS)
        if bare:
            self._content += [*self._blanks, bare]
            self._blanks.clear()
            self._is_behind_tag = False
        if len(bare) < len(text):
            self._blanks.append(text[len(bare) :])


class ToolCall(msgspec.Struct, frozen=True):
    """A whole call; `arguments` is JSON text."""

    id: str
    name: str
    arguments: str


class ToolAnswer(msgspec.Struct, frozen=True):
    """What a whole answer amounts to; an unfinished call is the last of the calls, its arguments cut off."""

    content: str
    calls: tuple[ToolCall, ...]
    unfinished: UnfinishedCall | None


def join_deltas(deltas: Sequence[ToolDelta]) -> ToolAnswer:
    """Return what the deltas of one answer amount to, the one of `flush` being the last."""
    calls = join_calls(call for delta in deltas for call in delta.calls)
    return ToolAnswer("".join(delta.content for delta in deltas), calls, deltas[-1].unfinished)


def join_calls(deltas: Iterable[CallDelta]) -> tuple[ToolCall, ...]:
    """Return the calls that their deltas, in order, amount to."""
    heads: list[CallDelta] = []
    arguments: list[list[str]] = []
    for call in deltas:
        if call.index == len(heads):
            heads.append(call)
            arguments.append([])
        arguments[call.index].append(call.arguments)
    return tuple(ToolCall(h.id or "", h.name or "", "".join(parts)) for h, parts in zip(heads, arguments, strict=True))


def split_tool_calls(text: str, parameters: Mapping[str, Mapping[str, Any]], new_id: Callable[[], str]) -> ToolAnswer:
    """Return content and calls of a whole answer; arguments as for `ToolCallParser`."""
    parser = ToolCallParser(parameters, new_id)
    return join_deltas([parser.feed(text), parser.flush()])
