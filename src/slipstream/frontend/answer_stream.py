"""What the text of one chat answer is: reasoning, content and tool calls, token by token.

Pure and synchronous, and knows no protocol: every endpoint and the terminal read the same deltas. Not here: how an
answer is begun (chat), and how its tokens become text (stream).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from slipstream.frontend.stream import Delta
from slipstream.text.reasoning.mode import State
from slipstream.text.reasoning.parser import ReasoningDelta, ReasoningParser
from slipstream.text.tools.parser import CallDelta, ToolCall, ToolCallParser, ToolDelta, join_calls

Part = Literal["reasoning", "content", "call"]

AnswerEnd = Literal["stop", "length", "tool_calls", "abort", "error"]
"""How an answer ended; `tool_calls` is a `stop` with calls that are all complete."""


class TokenText(msgspec.Struct, frozen=True):
    """Text that became certain with one token.

    The texts of one part join to what the deltas join to: the reasoning, the content, or the arguments of all calls.

    Args:
        text: not empty.
        is_draft: whether the token was an accepted draft.
        part: what the text belongs to.
    """

    text: str
    is_draft: bool
    part: Part


class AnswerDelta(msgspec.Struct, frozen=True, kw_only=True):
    """What one delta of a request adds to its answer.

    Args:
        reasoning: more of the reasoning.
        content: more of the content.
        calls: more of calls, in order, at most one entry per call.
        tokens: the same text by the token that made it certain.
        finish_reason: None while it runs.
        stop_reason: as in `Delta`.
    """

    reasoning: str = ""
    content: str = ""
    calls: tuple[CallDelta, ...] = ()
    tokens: tuple[TokenText, ...] = ()
    finish_reason: AnswerEnd | None = None
    stop_reason: int | str | None = None


class ChatAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A whole answer.

    Args:
        reasoning: empty if there is none.
        content: empty if there is none.
        calls: in order; the arguments of one that was cut off are not valid JSON.
        tokens: the texts by token.
        finish_reason, stop_reason: as in `AnswerDelta`; None only if the deltas do not reach the end.
    """

    reasoning: str = ""
    content: str = ""
    calls: tuple[ToolCall, ...] = ()
    tokens: tuple[TokenText, ...] = ()
    finish_reason: AnswerEnd | None = None
    stop_reason: int | str | None = None


def new_call_id() -> str:
    """Return the id of a tool call, unlike any other."""
    return f"call_{uuid.uuid4().hex[:24]}"


class AnswerStream:
    """Take the deltas of one request; however its text is cut into deltas, the answers join to the same.

    Args:
        starts_in: what the first token belongs to.
        parameters: the JSON schema of each function's parameters, by name; None if calls are not looked for.
        max_calls: most calls to report, None for any number; further ones are dropped.
        new_id: returns the id of the next call.

    Attributes:
        num_reasoning_tokens: tokens so far whose text is reasoning.
    """

    def __init__(
        self,
        starts_in: State,
        parameters: Mapping[str, Mapping[str, Any]] | None,
        *,
        max_calls: int | None = None,
        new_id: Callable[[], str] = new_call_id,
    ) -> None:
        self.num_reasoning_tokens = 0
        self._max_calls = max_calls
        self._reasoning = ReasoningParser(starts_in)
        self._tools = None if parameters is None else ToolCallParser(parameters, new_id)
        self._is_draft = False
        self._said: dict[Part, list[str]] = {"reasoning": [], "content": []}
        self._calls: list[CallDelta] = []
        self._tokens: list[TokenText] = []

    @property
    def num_calls(self) -> int:
        """Calls begun so far."""
        return 0 if self._tools is None else self._tools.num_calls

    def feed(self, delta: Delta) -> AnswerDelta:
        """Take the next delta of the request; the one with a finish_reason also hands out what was withheld."""
        for place, piece in enumerate(delta.pieces):
            self._is_draft = place < delta.num_accepted
            self._take(self._reasoning.feed(piece))
        finish_reason: AnswerEnd | None = delta.finish_reason
        if finish_reason is not None:
            has_broken_call = self._flush(is_own_end=finish_reason == "stop" and delta.stop_reason is None)
            if finish_reason == "stop" and self.num_calls and not has_broken_call:
                finish_reason = "tool_calls"
        return self._answer(finish_reason, delta.stop_reason)

    def _flush(self, *, is_own_end: bool) -> bool:
        """Take what the parsers withheld; return whether a call stays unfinished."""
        self._take(self._reasoning.flush())
        if self._tools is None:
            return False
        last = self._tools.flush(is_own_end=is_own_end)
        self._take_content(last)
        if last.unfinished is None or not self._is_reported(last.unfinished.index):
            return False
        if is_own_end:
            self._add_call(CallDelta(last.unfinished.index, last.unfinished.closing))
        return not is_own_end

    def _take(self, delta: ReasoningDelta) -> None:
        # Content comes behind reasoning that the same piece ended; only a tag at the very start opens one behind it.
        self._say("reasoning", delta.reasoning)
        if self._tools is None:
            self._say("content", delta.content)
        elif delta.content:
            self._take_content(self._tools.feed(delta.content))

    def _take_content(self, delta: ToolDelta) -> None:
        self._say("content", delta.content)
        for call in delta.calls:
            if self._is_reported(call.index):
                self._add_call(call)

    def _is_reported(self, index: int) -> bool:
        return self._max_calls is None or index < self._max_calls

    def _add_call(self, call: CallDelta) -> None:
        if call.arguments:
            self._tokens.append(TokenText(call.arguments, self._is_draft, "call"))
        if self._calls and self._calls[-1].index == call.index:
            last = self._calls[-1]
            call = CallDelta(call.index, last.arguments + call.arguments, last.id, last.name)
            self._calls[-1] = call
        else:
            self._calls.append(call)

    def _say(self, part: Literal["reasoning", "content"], text: str) -> None:
        if text:
            self.num_reasoning_tokens += part == "reasoning"
            self._said[part].append(text)
            self._tokens.append(TokenText(text, self._is_draft, part))

    def _answer(self, finish_reason: AnswerEnd | None, stop_reason: int | str | None) -> AnswerDelta:
        delta = AnswerDelta(
            reasoning="".join(self._said["reasoning"]),
            content="".join(self._said["content"]),
            calls=tuple(self._calls),
            tokens=tuple(self._tokens),
            finish_reason=finish_reason,
            stop_reason=stop_reason,
        )
        for texts in self._said.values():
            texts.clear()
        self._calls.clear()
        self._tokens.clear()
        return delta


def join_answer(deltas: Sequence[AnswerDelta]) -> ChatAnswer:
    """Return the whole answer that the deltas amount to."""
    return ChatAnswer(
        reasoning="".join(delta.reasoning for delta in deltas),
        content="".join(delta.content for delta in deltas),
        calls=join_calls(call for delta in deltas for call in delta.calls),
        tokens=tuple(token for delta in deltas for token in delta.tokens),
        finish_reason=deltas[-1].finish_reason if deltas else None,
        stop_reason=deltas[-1].stop_reason if deltas else None,
    )
