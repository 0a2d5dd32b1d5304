"""The engine's loop: plan, submit, collect, commit. Two turns stand side by side and differ by which step they collect.

A step that decodes and computes prompts is taken in twice, in two turns: its ladders as soon as they are done, so that
their tokens do not wait for somebody's prompt, then its chunks.

Without overlap a step is collected right after it was submitted. With overlap step N+1 is planned, on bounds, and
submitted before step N is collected, so the host's work hides behind the device's; at most one launched step is
unretired besides it. Both give the same tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import msgspec

from slipstream.base.errors import OverloadedError, RequestError, SlipstreamError, UnsupportedFeature
from slipstream.engine.grammars import Compiled, GrammarIntake
from slipstream.engine.late_compiles import LateCompiles
from slipstream.engine.wake import Wake
from slipstream.scheduler.scheduler import Scheduler
from slipstream.wire.messages import EngineStats, RequestOutput
from slipstream.wire.request import Request
from slipstream.wire.step import StepPlan, StepResult


class StepRunner(Protocol):
    """What the loop needs of a runner; tests drive it with a scripted one."""

    def submit(self, plan: StepPlan) -> Any:
        """Launch a step and return its handle."""
        ...

    def collect_ladders(self, handle: Any) -> tuple[StepResult, Any]:
        """Wait for the decode part of a launched step; return its runs, and the handle of what is left."""
        ...

    def collect(self, handle: Any) -> StepResult:
        """Wait for a launched step, or for what is left of it."""
        ...


class _Launched(NamedTuple):
    """A step that was submitted."""

    handle: Any
    has_both: bool  # ladders and chunks


class EngineCore:
    """One engine: a scheduler, a runner and the loop between them.

    Args:
        scheduler: built with `max_steps_in_flight` 2 when overlap is on, else 1.
        runner: executes plans.
        overlap: submit the next step before collecting the last one.
        on_close: ends what the runner holds besides memory.
        grammars: compiles the grammars of constrained requests; None refuses such requests. Closed with the loop.
        compiles: looked at after every turn; None where nothing can be compiled.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        runner: StepRunner,
        *,
        overlap: bool,
        on_close: Callable[[], None] | None = None,
        grammars: GrammarIntake | None = None,
        compiles: LateCompiles | None = None,
    ) -> None:
        self._compiles = compiles
        self._grammars = grammars
        self._on_close = on_close
        self._scheduler = scheduler
        self._runner = runner
        self._overlap = overlap
        self._launched: _Launched | None = None
        self._left: Any = None  # of a step whose ladders were taken in

    @property
    def has_work(self) -> bool:
        """Whether a request has not ended, be it that its grammar is being compiled, or a step is unretired."""
        return self._can_step or bool(self._compiling)

    @property
    def can_turn(self) -> bool:
        """Whether a turn would do anything now: not so while all that is left is to wait for a compilation."""
        return self._can_step or (self._grammars is not None and self._grammars.has_news)

    @property
    def request_ids(self) -> tuple[str, ...]:
        """Every request that waits or runs, or whose grammar is being compiled."""
        return (*self._scheduler.request_ids, *self._compiling)

    @property
    def wake(self) -> Wake | None:
        """Sounds when a compilation ends, and is for its waiter to reset; None when nothing is ever compiled."""
        return None if self._grammars is None else self._grammars.wake

    def wait(self, timeout_s: float) -> None:
        """Wait until a turn would do something, while all that is left is to wait for a compilation.

        Args:
            timeout_s: longest wait, in seconds.
        """
        if self._grammars is not None and self._compiling and not self.can_turn:
            self._grammars.wake.wait(timeout_s)
            # Before the next look: what ends from here on sounds again.
            self._grammars.wake.reset()

    def prepare(self) -> None:
        """Begin what the first constrained request would otherwise wait for, on another thread. Does not wait."""
        if self._grammars is not None:
            self._grammars.start()

    def close(self) -> None:
        """End what the loop and its runner hold besides memory; what is running is lost. May be called twice."""
        if self._grammars is not None:
            self._grammars.close()
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close()

    def submit(self, request: Request) -> RequestOutput | None:
        """Queue a request; one that can never be served is answered at once with an error.

        A constrained request is queued once its grammar is compiled, which `turn` tells.
        """
        try:
            if request.sampling.grammar is None:
                self._check_id(request.request_id)
                self._scheduler.submit(request)
            else:
                self._compile(request)
        except (RequestError, OverloadedError) as error:
            return _refuse(request.request_id, error)
        return None

    def abort(self, request_id: str) -> RequestOutput | None:
        """End a request; None when it is unknown, because it may just have finished."""
        if self._grammars is None:
            return self._scheduler.abort(request_id)
        if self._grammars.cancel(request_id) is not None:
            return RequestOutput(request_id=request_id, finish_reason="abort")
        self._grammars.forget(request_id)
        return self._scheduler.abort(request_id)

    def turn(self) -> list[RequestOutput]:
        """Run one turn of the loop and return the news it brought.

        Raises:
            EngineError: a kernel was compiled, and the engine was told to end then.
        """
        news = self._turn()
        if self._compiles is not None:
            self._compiles.check()
        return news

    def _turn(self) -> list[RequestOutput]:
        if self._grammars is None:
            return self._step()
        news = [self._accept(compiled) for compiled in self._grammars.take()]
        news += self._step()
        for output in news:
            if output.finish_reason is not None:
                self._grammars.forget(output.request_id)
        return news

    def stats(self) -> EngineStats:
        """Return a snapshot of gauges and counters."""
        stats, num_compiling = self._scheduler.stats(), len(self._compiling)
        num_late = 0 if self._compiles is None else self._compiles.count
        if not num_compiling and not num_late:
            return stats
        return msgspec.structs.replace(
            stats, num_waiting=stats.num_waiting + num_compiling, num_deferred=num_compiling, num_late_compiles=num_late
        )

    @property
    def _can_step(self) -> bool:
        return self._launched is not None or self._left is not None or self._scheduler.has_work

    @property
    def _compiling(self) -> tuple[str, ...]:
        return () if self._grammars is None else self._grammars.request_ids

    def _check_id(self, request_id: str) -> None:
        if request_id in self._compiling:
            raise RequestError(f"request_id={request_id!r} is in flight: give an id of its own", param="request_id")

    def _compile(self, request: Request) -> None:
        if self._grammars is None:
            raise UnsupportedFeature("this engine serves no structured output", code="no_structured_output")
        self._check_id(request.request_id)
        # What could never run is not worth a compilation.
        self._scheduler.check(request)
        self._grammars.submit(request)

    def _accept(self, compiled: Compiled) -> RequestOutput:
        request_id = compiled.request.request_id
        if compiled.error is not None:
            return _refuse(request_id, compiled.error)
        # It was checked when it came, and nobody else has got its id since.
        self._scheduler.submit(compiled.request)
        return RequestOutput(request_id=request_id, is_accepted=True)

    def _step(self) -> list[RequestOutput]:
        left, self._left = self._left, None
        if left is not None:
            return self._scheduler.commit(self._runner.collect(left))
        return self._overlapped_turn() if self._overlap else self._plain_turn()

    def _plain_turn(self) -> list[RequestOutput]:
        launched = self._launch()
        return self._take_in(launched) if launched is not None else []

    def _overlapped_turn(self) -> list[RequestOutput]:
        last = self._launched
        self._launched = self._launch()
        return self._take_in(last) if last is not None else []

    def _launch(self) -> _Launched | None:
        plan = self._scheduler.plan()
        if plan is None:
            return None
        return _Launched(self._runner.submit(plan), bool(plan.decode_rows and plan.chunks))

    def _take_in(self, launched: _Launched) -> list[RequestOutput]:
        if not launched.has_both:
            return self._scheduler.commit(self._runner.collect(launched.handle))
        result, self._left = self._runner.collect_ladders(launched.handle)
        return self._scheduler.commit_ladders(result)


def _refuse(request_id: str, error: SlipstreamError) -> RequestOutput:
    return RequestOutput(
        request_id=request_id,
        finish_reason="error",
        error=str(error),
        error_kind=type(error).__name__,
        error_code=getattr(error, "code", None),
    )
