"""One request in flight, as the caller of `AsyncLLM` holds it: an asynchronous iterator of deltas."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from slipstream.base.errors import SlipstreamError
from slipstream.frontend.answer_stream import AnswerStream
from slipstream.frontend.stream import Delta, RequestStream


class Generation:
    """Iterate over the deltas of one request; close it when done, or the engine goes on working for nobody.

    Args:
        stream: the request's state; its counts are complete once the iteration has ended.
        on_close: told once, when the caller closes before the end.
        answer: reads the deltas as reasoning, content and calls; everything is content unless a chat says otherwise.
    """

    def __init__(self, stream: RequestStream, on_close: Callable[[], None], answer: AnswerStream | None = None) -> None:
        self.stream = stream
        self.answer = answer or AnswerStream("content", None)
        self._on_close = on_close
        self._deltas: deque[Delta] = deque()
        self._error: SlipstreamError | None = None
        self._has_ended = False
        # Only a constrained request has to be accepted by the engine, once its grammar is compiled.
        self._is_accepted = stream.request.sampling.grammar is None
        self._news = asyncio.Event()

    @property
    def request_id(self) -> str:
        """Id of the request."""
        return self.stream.request.request_id

    def accept(self) -> None:
        """Note that the engine has compiled the request's grammar and queued it."""
        self._is_accepted = True
        self._news.set()

    async def wait_accepted(self) -> None:
        """Wait until the request is accepted; at once for one without a constraint.

        Raises:
            SlipstreamError: why it was refused, or what else ended it.
        """
        while not (self._is_accepted or self._has_ended):
            self._news.clear()
            await self._news.wait()
        if not self._is_accepted and self._error is not None:
            raise self._error

    async def accepted(self) -> Generation:
        """Return this once it is accepted; close it if it is not, or if the caller does not wait."""
        try:
            await self.wait_accepted()
        except BaseException:
            self.close()
            raise
        return self

    def put(self, delta: Delta) -> None:
        """Hand over the next delta; one with a finish_reason is the last."""
        if not self._has_ended:
            self._deltas.append(delta)
            self._has_ended = delta.finish_reason is not None
            self._news.set()

    def fail(self, error: SlipstreamError) -> None:
        """End with an error, after the deltas that are already there. Only the first end counts."""
        if not self._has_ended:
            self._error = error
            self._has_ended = True
            self._news.set()

    def close(self) -> None:
        """Stop the request if it still runs. May be called twice, and from a `finally`: it does not wait."""
        if not self._has_ended:
            self._has_ended = True
            self._on_close()
            self._news.set()

    def __aiter__(self) -> Generation:
        return self

    async def __anext__(self) -> Delta:
        while not self._deltas:
            if self._has_ended:
                if self._error is not None:
                    raise self._error
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        return self._deltas.popleft()
