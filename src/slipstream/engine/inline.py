"""An engine in the caller's own process and thread: what `LLM` and the tests use.

It moves only while somebody polls it. The server uses a process of its own instead (`engine.main`).
"""

from __future__ import annotations

from collections.abc import Callable

from slipstream.base.errors import EngineError
from slipstream.config.schema import EngineConfig
from slipstream.engine.assemble import assemble
from slipstream.engine.core import EngineCore
from slipstream.wire.messages import (
    Abort,
    EngineFacts,
    Failed,
    Outputs,
    Progress,
    Ready,
    RequestOutput,
    Shutdown,
    Stopped,
    Submit,
    ToEngine,
    ToFrontend,
)
from slipstream.wire.request import Request

_DRAIN_POLL_S = 0.5


class InlineEngine:
    """A `SyncEngine` whose `poll` runs the loop.

    Args:
        core: the loop.
        facts: what the front end must know.
    """

    def __init__(self, core: EngineCore, facts: EngineFacts) -> None:
        self._core = core
        self._facts = facts
        self._news: list[RequestOutput] = []
        self._is_ready_told = False
        self._told = core.stats()
        self._is_closed = False
        self._failed: Failed | None = None

    def send(self, message: ToEngine) -> None:
        """Take one message of the wire protocol."""
        if isinstance(message, Submit):
            self.submit(message.request)
        elif isinstance(message, Abort):
            self.abort(message.request_id)
        else:
            self._shut_down(message)

    def submit(self, request: Request) -> None:
        """Queue a request; a refusal arrives with the next poll."""
        self._note(self._core.submit(request))

    def abort(self, request_id: str) -> None:
        """End a request; unknown ids are ignored."""
        self._note(self._core.abort(request_id))

    def poll(self, timeout_s: float | None = None) -> list[ToFrontend]:
        """Run one turn and return its news.

        While all that is left is to wait for the compilation of a constraint, it waits for that first, at most
        `timeout_s` seconds. An engine that broke tells each request so once, then that it failed; from then on only
        the latter.
        """
        if not self._is_ready_told:
            self._is_ready_told = True
            return [Ready(facts=self._facts)]
        if self._is_closed:
            return [Stopped()]
        if self._failed is not None:
            return [self._failed]
        if timeout_s and not self._news:
            self._core.wait(timeout_s)
        news, self._news = self._news, []
        try:
            news.extend(self._core.turn())
        except EngineError as error:
            return self._break(news, str(error))
        stats = self._core.stats()
        if not news and stats == self._told:
            return []
        self._told = stats
        return [Outputs(outputs=tuple(news), stats=stats)]

    def close(self) -> None:
        """Drop the engine; what is running is lost."""
        self._is_closed = True
        self._core.close()

    def _shut_down(self, message: Shutdown) -> None:
        while message.drain and self._core.has_work:
            self._core.wait(_DRAIN_POLL_S)
            self._news.extend(self._core.turn())
        self.close()

    def _break(self, news: list[RequestOutput], reason: str) -> list[ToFrontend]:
        self._failed = Failed(kind=EngineError.__name__, reason=reason)
        news += [RequestOutput(request_id=id_, finish_reason="error", error=reason) for id_ in self._core.request_ids]
        self._core.close()
        return [Outputs(outputs=tuple(news), stats=self._core.stats()), self._failed]

    def _note(self, output: RequestOutput | None) -> None:
        if output is not None:
            self._news.append(output)


def create(config: EngineConfig, on_progress: Callable[[Progress], None]) -> InlineEngine:
    """Build an engine in this process.

    Args:
        config: what to run on.
        on_progress: told of loading and warm-up.

    Returns:
        The engine, warmed up.
    """
    core, facts = assemble(config, on_progress)
    return InlineEngine(core, facts)
