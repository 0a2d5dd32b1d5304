"""Constrained requests before the scheduler knows them: their grammars are compiled on a thread, nobody else waits.

The engine's loop hands requests over, looks for finished ones, and is woken by them when it is idle. Not here: how
grammars are compiled (`text.grammar`), what rows do with them (`runner.grammar_rows`).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple, Protocol

from slipstream.base.errors import EngineError, OverloadedError, RequestError, SlipstreamError
from slipstream.engine.wake import Wake
from slipstream.runner.grammar_registry import GrammarRegistry
from slipstream.text.grammar.compile_queue import CompileQueue, SpecCompiler
from slipstream.text.grammar.compiler import CompiledGrammar
from slipstream.text.grammar.matcher import LadderMatcher
from slipstream.wire.grammar import GrammarSpec
from slipstream.wire.request import GrammarStart, Request


class MatchingCompiler(SpecCompiler, Protocol):
    """What the intake needs of a compiler; `text.grammar.lazy_compiler` is one."""

    def match(self, grammar: CompiledGrammar, starts: GrammarStart) -> LadderMatcher:
        """Return a matcher for one answer."""
        ...

    def close(self) -> None:
        """End what compiling needs besides memory, and a compilation in progress with it."""
        ...


class Compiled(NamedTuple):
    """A request whose compilation ended: `error` is None when its grammar is in the registry."""

    request: Request
    error: SlipstreamError | None


class GrammarIntake:
    """Where constrained requests wait for their grammars. It belongs to the engine's loop.

    Args:
        compiler: called on a thread of its own; closed with this object.
        registry: where the grammars of accepted requests are put; this object takes them out again.
    """

    def __init__(self, compiler: MatchingCompiler, registry: GrammarRegistry) -> None:
        # It may sound for a request that was given up meanwhile: who waits for it resets it, then looks.
        self.wake = Wake()
        self._compiler = compiler
        self._registry = registry
        self._queue = CompileQueue(compiler)
        self._waiting: dict[str, tuple[Request, GrammarSpec]] = {}
        # One per grammar: however many requests wait for it, it takes one place in the queue.
        self._compiling: dict[GrammarSpec, Future[CompiledGrammar]] = {}

    @property
    def request_ids(self) -> tuple[str, ...]:
        """Requests whose grammars are being compiled, oldest first."""
        return tuple(self._waiting)

    @property
    def has_news(self) -> bool:
        """Whether a compilation has ended that was not taken yet."""
        return any(future.done() for future in self._compiling.values())

    def start(self) -> None:
        """Make compiling ready on its thread, so that the first request does not wait for it. Does not wait."""
        self._queue.start()

    def submit(self, request: Request) -> None:
        """Have a request's grammar compiled.

        Args:
            request: constrained; its id is not among the waiting ones.

        Raises:
            OverloadedError: too many wait.
        """
        spec = request.sampling.grammar
        assert spec is not None
        if spec not in self._compiling:
            future = self._compiling[spec] = self._queue.submit(spec)
            future.add_done_callback(_sounding(self.wake))
        self._waiting[request.request_id] = (request, spec)

    def cancel(self, request_id: str) -> Request | None:
        """Give a waiting request up and return it; None when it does not wait here."""
        request, spec = self._waiting.pop(request_id, (None, None))
        if spec is not None and all(other != spec for _, other in self._waiting.values()):
            self._compiling.pop(spec).cancel()
        return request

    def take(self) -> list[Compiled]:
        """Return the requests whose compilations have ended since the last call, in order of submission."""
        done = {spec: future for spec, future in self._compiling.items() if future.done()}
        for spec in done:
            del self._compiling[spec]
        ended = [request_id for request_id, (_, spec) in self._waiting.items() if spec in done]
        return [self._finish(request, done[spec]) for request, spec in map(self._waiting.pop, ended)]

    def forget(self, request_id: str) -> None:
        """Drop the grammar of a request that ended; unknown ids are ignored."""
        self._registry.drop(request_id)

    def close(self) -> None:
        """Give up what waits, and end the thread and its process. May be called twice."""
        for request_id in self.request_ids:
            self.cancel(request_id)
        # In this order: a compilation in progress ends when its process does, and the thread with it.
        self._compiler.close()
        self._queue.close()
        self.wake.close()

    def _finish(self, request: Request, future: Future[CompiledGrammar]) -> Compiled:
        error = future.exception()
        if error is not None:
            return Compiled(request, _as_ours(error))
        grammar, compiler, starts = future.result(), self._compiler, request.grammar_starts
        self._registry.put(request.request_id, lambda: compiler.match(grammar, starts))
        return Compiled(request, None)


def _sounding(wake: Wake) -> Callable[[Future[CompiledGrammar]], None]:
    return lambda future: wake.sound()


def _as_ours(error: BaseException) -> SlipstreamError:
    """Return an error of the project; a panic of the library, which is no Exception, is the request's end alone."""
    if isinstance(error, (RequestError, OverloadedError, EngineError)):
        return error
    return EngineError(f"the constraint could not be compiled: {type(error).__name__}: {error}")
