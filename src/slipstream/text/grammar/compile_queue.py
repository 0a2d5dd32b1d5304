"""Compile on a thread of its own, so that a loop which must not block only ever hands over and looks."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, Self

from slipstream.base.errors import OverloadedError
from slipstream.text.grammar.compiler import CompiledGrammar
from slipstream.wire.grammar import GrammarSpec

MAX_WAITING = 256


class SpecCompiler(Protocol):
    """What a queue needs of a compiler."""

    def find(self, spec: GrammarSpec) -> CompiledGrammar | None:
        """Return a grammar that is compiled already, or None. Never blocks for long."""
        ...

    def compile(self, spec: GrammarSpec) -> CompiledGrammar:
        """Return the compiled grammar of a specification; called from the queue's thread."""
        ...

    def start(self) -> None:
        """Make ready what the first specification would wait for; called from the queue's thread."""
        ...


class CompileQueue:
    """One worker thread in front of a compiler.

    A returned future can be cancelled. One that waits is then never compiled; one that is being compiled runs to its
    end, at most the compiler's deadline twice (once in the guard process, once here), and its grammar is kept for
    whoever asks next.

    Args:
        compiler: does the work; not closed by the queue.
        max_waiting: most specifications that wait or run.
    """

    def __init__(self, compiler: SpecCompiler, *, max_waiting: int = MAX_WAITING) -> None:
        self._compiler = compiler
        self._max_waiting = max_waiting
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="compile-grammar")
        self._lock = threading.Lock()
        self._num_waiting = 0
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def num_waiting(self) -> int:
        """Specifications that wait or run."""
        return self._num_waiting

    def start(self) -> None:
        """Let the thread make the compiler ready, ahead of what is submitted later. Does not wait.

        What goes wrong there is told to whoever submits first.
        """
        with self._lock:
            if not self._is_closed:
                self._pool.submit(self._compiler.start)

    def submit(self, spec: GrammarSpec) -> Future[CompiledGrammar]:
        """Return a future of the compiled grammar; complete at once when it is known already.

        Args:
            spec: what to compile. The future raises what `GrammarCompiler.compile` raises.

        Raises:
            OverloadedError: too many are waiting, or the queue is closed.
        """
        known = self._compiler.find(spec)
        if known is not None:
            ready: Future[CompiledGrammar] = Future()
            ready.set_result(known)
            return ready
        with self._lock:
            if self._is_closed:
                raise OverloadedError("structured output is shutting down: no constraint is compiled any more")
            if self._num_waiting >= self._max_waiting:
                raise OverloadedError(
                    f"{self._num_waiting} constraints wait to be compiled, at most {self._max_waiting} may: retry later"
                )
            self._num_waiting += 1
            future = self._pool.submit(self._compiler.compile, spec)
        future.add_done_callback(self._count_down)
        return future

    def close(self) -> None:
        """Cancel what waits, wait for what runs, end the thread. May be called twice."""
        with self._lock:
            self._is_closed = True
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _count_down(self, future: Future[CompiledGrammar]) -> None:
        del future
        with self._lock:
            self._num_waiting -= 1
