"""The choices of /v1/chat/completions: what one request of the engine returns, as a whole or piece by piece."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slipstream.frontend.answer_stream import AnswerStream, ChatAnswer, TokenText, join_answer
from slipstream.frontend.stream import Delta
from slipstream.server.answer import chat_logprobs
from slipstream.server.protocol.chat_responses import (
    UNSET,
    CalledFunction,
    ChatChoice,
    ChatChunkChoice,
    ChatDelta,
    ChatLogprobs,
    ChatMessage,
    ChatToolCall,
    FunctionDelta,
    TokenOrigin,
    ToolCallDelta,
)
from slipstream.text.tokenizer import Tokenizer
from slipstream.text.tools.parser import CallDelta


@dataclass(frozen=True)
class ShownChat:
    """What the choices of one call show.

    Args:
        has_reasoning: the reasoning is shown.
        has_ids: token ids of the answer are shown.
        has_origins: texts by token, and where each token came from, are shown.
        as_ids: tokens of log-probabilities are written as `token_id:N`.
    """

    has_reasoning: bool = True
    has_ids: bool = False
    has_origins: bool = False
    as_ids: bool = False


class ChatChoiceWriter:
    """Writes one choice.

    Args:
        tokenizer: of the model.
        shown: what is shown.
        answer: reads the deltas of the request.
        index: of the choice.
    """

    def __init__(self, tokenizer: Tokenizer, shown: ShownChat, answer: AnswerStream, index: int) -> None:
        self._tokenizer = tokenizer
        self._shown = shown
        self._answer = answer
        self._index = index

    def begin(self) -> ChatChunkChoice:
        """Return the piece that a stream begins with."""
        return ChatChunkChoice(index=self._index, delta=ChatDelta(role="assistant", content=""))

    def piece(self, delta: Delta) -> ChatChunkChoice | None:
        """Return what a delta adds; None if a client can see nothing in it."""
        shown, more = self._shown, self._answer.feed(delta)
        reasoning = more.reasoning if shown.has_reasoning else ""
        has_text = bool(reasoning or more.content or more.calls)
        is_last = more.finish_reason is not None
        if not (has_text or is_last or delta.logprobs or (shown.has_ids and delta.token_ids)):
            return None
        return ChatChunkChoice(
            index=self._index,
            delta=ChatDelta(
                content=more.content or (UNSET if has_text or is_last else ""),
                reasoning_content=reasoning or UNSET,
                tool_calls=[_call_delta(call) for call in more.calls] or UNSET,
            ),
            finish_reason=more.finish_reason,
            stop_reason=more.stop_reason if is_last else UNSET,
            logprobs=self._logprobs(delta),
            token_ids=list(delta.token_ids) if shown.has_ids else UNSET,
            token_origins=self._origins(more.tokens) if shown.has_origins else UNSET,
        )

    def whole(self, deltas: Sequence[Delta], joined: Delta) -> ChatChoice:
        """Return the whole choice.

        Args:
            deltas: all of the request.
            joined: the same as one.
        """
        shown = self._shown
        answer = join_answer([self._answer.feed(delta) for delta in deltas])
        return ChatChoice(
            index=self._index,
            message=self._message(answer),
            finish_reason=answer.finish_reason,
            stop_reason=answer.stop_reason,
            logprobs=self._logprobs(joined),
            token_ids=list(joined.token_ids) if shown.has_ids else UNSET,
            token_origins=self._origins(answer.tokens) if shown.has_origins else UNSET,
        )

    def _message(self, answer: ChatAnswer) -> ChatMessage:
        calls = [
            ChatToolCall(id=call.id, function=CalledFunction(name=call.name, arguments=call.arguments))
            for call in answer.calls
        ]
        return ChatMessage(
            content=answer.content or (None if calls else ""),
            reasoning_content=(answer.reasoning or UNSET) if self._shown.has_reasoning else UNSET,
            tool_calls=calls or UNSET,
        )

    def _logprobs(self, delta: Delta) -> ChatLogprobs | None:
        return chat_logprobs(
            self._tokenizer, delta.token_ids, delta.logprobs, delta.top_logprobs, as_ids=self._shown.as_ids
        )

    def _origins(self, tokens: Sequence[TokenText]) -> list[TokenOrigin]:
        return [
            TokenOrigin(text=token.text, is_draft=token.is_draft, part=token.part)
            for token in tokens
            if self._shown.has_reasoning or token.part != "reasoning"
        ]


def _call_delta(call: CallDelta) -> ToolCallDelta:
    if call.id is None or call.name is None:
        return ToolCallDelta(index=call.index, function=FunctionDelta(arguments=call.arguments))
    return ToolCallDelta(
        index=call.index,
        id=call.id,
        type="function",
        function=FunctionDelta(name=call.name, arguments=call.arguments),
    )
