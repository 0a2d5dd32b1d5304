"""Everything the scheduler remembers between calls. Planning and committing are functions over it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from slipstream.cache.logical.manager import CacheManager, PrefixHit
from slipstream.scheduler.budget import SchedulerConfig
from slipstream.scheduler.lifecycle import Decoding, Finished, Ledger, Prefilling
from slipstream.scheduler.queue import WaitingQueue
from slipstream.scheduler.rows import RowPool
from slipstream.scheduler.tally import Tally
from slipstream.wire.ids import RowId
from slipstream.wire.messages import FinishReason


@dataclass(frozen=True)
class PlannedRow:
    """A row's part in a launched step; the ledger says whose row it was when the step was planned."""

    row: RowId
    ledger: Ledger
    is_ladder: bool
    is_emitting: bool


@dataclass(frozen=True)
class LaunchedStep:
    """A plan that was handed out and whose result is not committed.

    Args:
        step_id: the plan's.
        rows: decode rows, then chunks, in plan order.
        draft_len: K of the plan.
        num_tokens: query tokens of the step.
    """

    step_id: int
    rows: tuple[PlannedRow, ...]
    draft_len: int
    num_tokens: int


def _new_running() -> dict[RowId, Prefilling | Decoding]:
    return {}


def _new_launched() -> deque[LaunchedStep]:
    return deque()


@dataclass(eq=False)
class SchedulerState:
    """The scheduler's memory.

    Args:
        config: limits.
        cache: pages.
        clock: monotonic seconds.
        rows: free rows.
        tally: counters.
        queue: requests without a row.
        running: requests with a row.
        launched: steps in flight, oldest first.
        next_step: id of the next plan.
        next_order: order of the next request.
        stalled_on: head of the queue and available pages when it last did not fit; None when worth a try.
        found_prefix: head of the queue and the stored prefix that its last try found, held by nobody.
    """

    config: SchedulerConfig
    cache: CacheManager
    clock: Callable[[], float]
    rows: RowPool
    tally: Tally
    queue: WaitingQueue = field(default_factory=WaitingQueue)
    running: dict[RowId, Prefilling | Decoding] = field(default_factory=_new_running)
    launched: deque[LaunchedStep] = field(default_factory=_new_launched)
    next_step: int = 0
    next_order: int = 0
    stalled_on: tuple[str, int] | None = None
    found_prefix: tuple[str, PrefixHit] | None = None

    def by_age(self) -> list[Prefilling | Decoding]:
        """Return the running requests, oldest first."""
        return sorted(self.running.values(), key=lambda running: running.ledger.order)

    def give_back(self, running: Prefilling | Decoding) -> None:
        """Return a running request's row and pages; both are reusable when its last step has retired."""
        del self.running[running.row]
        self.cache.release(running.row, running.last_step)
        self.rows.release(running.row, running.last_step)

    def finish(
        self,
        running: Prefilling | Decoding,
        finish_reason: FinishReason,
        *,
        stop_reason: int | None = None,
        error: str | None = None,
        error_code: str | None = None,
    ) -> Finished:
        """End a running request."""
        self.give_back(running)
        return Finished(running.give_up_row(), finish_reason, stop_reason, error, error_code)

    def preempt(self, running: Prefilling | Decoding) -> None:
        """End a running request's row and queue the request before all others.

        INVARIANT: nothing of it is in flight. Every token it emitted has been returned, so its continuation starts
        from what the caller has seen, at the same position and with the same noise.
        """
        assert not running.flights
        self.give_back(running)
        waiting = running.to_waiting()
        waiting.ledger.num_preemptions += 1
        self.tally.num_preemptions += 1
        self.queue.push_front(waiting)
