"""The engine's loop: plan, submit, collect, commit. Two turns stand side by side and differ by which step they collect.

Without overlap a step is collected right after it was submitted. With overlap step N+1 is planned, on bounds, and
submitted before step N is collected, so the host's work hides behind the device's; at most one launched step is
unretired besides it. Both give the same tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from slipstream.base.errors import RequestError
from slipstream.scheduler.scheduler import Scheduler
from slipstream.wire.messages import EngineStats, RequestOutput
from slipstream.wire.request import Request
from slipstream.wire.step import StepPlan, StepResult


class StepRunner(Protocol):
    """What the loop needs of a runner; tests drive it with a scripted one."""

    def submit(self, plan: StepPlan) -> Any:
        """Launch a step and return its handle."""
        ...

    def collect(self, handle: Any) -> StepResult:
        """Wait for a launched step."""
        ...


class EngineCore:
    """One engine: a scheduler, a runner and the loop between them.

    Args:
        scheduler: built with `max_steps_in_flight` 2 when overlap is on, else 1.
        runner: executes plans.
        overlap: submit the next step before collecting the last one.
        on_close: ends what the runner holds besides memory.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        runner: StepRunner,
        *,
        overlap: bool,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        self._on_close = on_close
        self._scheduler = scheduler
        self._runner = runner
        self._overlap = overlap
        self._launched: Any = None

    @property
    def has_work(self) -> bool:
        """Whether a turn would do anything: requests are queued or running, or a step is unretired."""
        return self._launched is not None or self._scheduler.has_work

    @property
    def request_ids(self) -> tuple[str, ...]:
        """Every request that waits or runs."""
        return self._scheduler.request_ids

    def close(self) -> None:
        """End what the runner holds besides memory; what is running is lost. May be called twice."""
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close()

    def submit(self, request: Request) -> RequestOutput | None:
        """Queue a request; one that can never fit is answered at once with an error."""
        try:
            self._scheduler.submit(request)
        except RequestError as error:
            return RequestOutput(request_id=request.request_id, finish_reason="error", error=str(error))
        return None

    def abort(self, request_id: str) -> RequestOutput | None:
        """End a request; None when it is unknown, because it may just have finished."""
        return self._scheduler.abort(request_id)

    def turn(self) -> list[RequestOutput]:
        """Run one turn of the loop and return the news it brought."""
        return self._overlapped_turn() if self._overlap else self._plain_turn()

    def stats(self) -> EngineStats:
        """Return a snapshot of gauges and counters."""
        return self._scheduler.stats()

    def _plain_turn(self) -> list[RequestOutput]:
        plan = self._scheduler.plan()
        if plan is None:
            return []
        return self._scheduler.commit(self._runner.collect(self._runner.submit(plan)))

    def _overlapped_turn(self) -> list[RequestOutput]:
        last = self._launched
        plan = self._scheduler.plan()
        self._launched = self._runner.submit(plan) if plan is not None else None
        return self._scheduler.commit(self._runner.collect(last)) if last is not None else []
