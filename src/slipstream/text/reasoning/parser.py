"""Split an answer into reasoning and content while it arrives.

Where a tag counts, and where it is text like any other:

- Undecided (no tag yet): an opening tag starts reasoning, and text before it is content. A closing tag that nothing
  opened is a delimiter: the text on both sides is content.
- In reasoning: a closing tag ends it. An opening tag counts only at the very start, where it repeats and is dropped.
  Reasoning that is never closed stays reasoning.
- In content, after reasoning or because the answer started there: tags count only at the very start, before any text.
  There, closing tags repeat and are dropped, and an opening tag starts reasoning. Later tags are quotations, so that
  an answer may talk about them. (While undecided it may not: pin the thinking mode.)

White space: line breaks right after a tag, also one that the prompt ends with, belong to the tag and are dropped;
blanks between a tag and the next are dropped too. All other text arrives unchanged, white space before a closing tag
included. A tag may arrive in any number of pieces; what may become one is withheld, at most ten characters, besides
blanks at the start.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from slipstream.text.reasoning.mode import THINK_CLOSE, THINK_OPEN, State

_BLANK_RUN = re.compile(r"[ \t\r\n]*")
_BREAKS = "\r\n"
_TAGS = (THINK_OPEN, THINK_CLOSE)
_MAX_TAG_CHARS = max(map(len, _TAGS))
_LATER_TAGS: dict[State, tuple[str, ...]] = {"undecided": _TAGS, "reasoning": (THINK_CLOSE,), "content": ()}
"""The tags that count behind text, by state."""


class ReasoningDelta(msgspec.Struct, frozen=True):
    """What some fed pieces amount to.

    Args:
        reasoning: reasoning text that is now certain.
        content: content text that is now certain.
        ended_in: place, among the fed pieces (tokens), of the one that completed the tag which ended the reasoning;
            None if it did not end here. If it ended twice, the last end counts.
        ended_at: offset inside that piece of the first character behind the tag. Everything from there on is
            content, so a grammar that starts after the reasoning starts exactly here.
    """

    reasoning: str = ""
    content: str = ""
    ended_in: int | None = None
    ended_at: int | None = None


class ReasoningParser:
    """Take the decoded text of one answer, in pieces of any size.

    However the text is cut, the deltas plus `flush` join to the same reasoning and the same content.

    Args:
        starts_in: what the first token belongs to, as `mode.initial_state` says.
    """

    def __init__(self, starts_in: State) -> None:
        self.state: State = starts_in
        self._is_leading = True
        self._drops_breaks = starts_in != "undecided"
        self._blanks: list[str] = []
        self._held = ""
        self._reasoning: list[str] = []
        self._content: list[str] = []

    def feed(self, piece: str) -> ReasoningDelta:
        """Take the next piece of text."""
        return self.feed_tokens([piece])

    def feed_tokens(self, pieces: Sequence[str]) -> ReasoningDelta:
        """Take the pieces of the next tokens, in order.

        Args:
            pieces: one string per token, possibly empty.
        """
        ended_in = ended_at = None
        for place, piece in enumerate(pieces):
            end = self._take(piece)
            if end is not None:
                ended_in, ended_at = place, end
        return self._delta(ended_in, ended_at)

    def flush(self) -> ReasoningDelta:
        """Return what was withheld, because the answer is over: an unfinished tag is text."""
        held, self._held = self._held, ""
        self._say("".join(self._blanks) + held)
        self._blanks.clear()
        return self._delta(None, None)

    def _delta(self, ended_in: int | None, ended_at: int | None) -> ReasoningDelta:
        delta = ReasoningDelta("".join(self._reasoning), "".join(self._content), ended_in, ended_at)
        self._reasoning.clear()
        self._content.clear()
        return delta

    def _take(self, piece: str) -> int | None:
        """Take one piece; return the offset in it where reasoning ended, if it did."""
        text, num_old = self._held + piece, len(self._held)
        start, ended_at = 0, None
        while True:
            tag = None
            if self._is_leading:
                start = self._take_blanks(text, start)
                head = text[start : start + _MAX_TAG_CHARS]
                tag = next((tag for tag in _TAGS if head.startswith(tag)), None)
                if tag is None and any(tag.startswith(head) for tag in _TAGS):
                    break
                if tag is None:
                    self._end_leading()
            if tag is None:
                tags = _LATER_TAGS[self.state]
                place, tag = _find_first(text, start, tags)
                self._say(text[start:place])
                start = place
            if tag is None:
                break
            start += len(tag)
            if self._change_state(tag):
                ended_at = start - num_old
        self._held = text[start:]
        return ended_at

    def _take_blanks(self, text: str, start: int) -> int:
        """Withhold the blanks that text has at `start`; return where they end."""
        run = _BLANK_RUN.match(text, start)
        end = run.end() if run else start
        blanks = text[start:end]
        if self._drops_breaks and not self._blanks:
            blanks = blanks.lstrip(_BREAKS)
        if blanks:
            self._blanks.append(blanks)
        return end

    def _end_leading(self) -> None:
        self._is_leading = False
        self._say("".join(self._blanks))
        self._blanks.clear()

    def _change_state(self, tag: str) -> bool:
        """Enter the state that a tag opens; return whether this ended the reasoning."""
        self._is_leading = self._drops_breaks = True
        self._blanks.clear()
        has_ended = tag == THINK_CLOSE and self.state != "content"
        self.state = "content" if tag == THINK_CLOSE else "reasoning"
        return has_ended

    def _say(self, text: str) -> None:
        if text:
            (self._reasoning if self.state == "reasoning" else self._content).append(text)


def split_reasoning(text: str, starts_in: State) -> tuple[str, str]:
    """Return reasoning and content of a whole answer."""
    parser = ReasoningParser(starts_in)
    first, last = parser.feed(text), parser.flush()
    return first.reasoning + last.reasoning, first.content + last.content


def _find_first(text: str, start: int, tags: Sequence[str]) -> tuple[int, str | None]:
    """Return where the first tag lies and which it is; without one, where text begins that may become one."""
    found = [(place, tag) for tag in tags if (place := text.find(tag, start)) >= 0]
    if found:
        return min(found)
    longest = max(map(len, tags), default=1) - 1
    for place in range(max(start, len(text) - longest), len(text)):
        if any(tag.startswith(text[place:]) for tag in tags):
            return place, None
    return len(text), None
