"""The scheduler: requests in, plans out; results in, news out.

It owns policy and nothing else: no tensors, no text, no waiting. `plan` and `commit` alternate; with two steps in
flight allowed, a step is planned before the one before it is committed, on bounds instead of counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

from slipstream.base.errors import ConfigError
from slipstream.cache.logical.manager import CacheManager
from slipstream.scheduler.admission import check_request
from slipstream.scheduler.budget import SchedulerConfig
from slipstream.scheduler.commit import commit_ladders, commit_result
from slipstream.scheduler.lifecycle import Finished, Ledger, Waiting
from slipstream.scheduler.plan import make_plan
from slipstream.scheduler.rows import RowPool
from slipstream.scheduler.state import SchedulerState
from slipstream.scheduler.tally import Tally
from slipstream.wire.messages import EngineStats, RequestOutput
from slipstream.wire.request import Request
from slipstream.wire.step import StepPlan, StepResult


class Scheduler:
    """Life cycle, order and budgets of all requests of one engine.

    Args:
        config: limits.
        cache: the pages, used by nobody else.
        clock: monotonic seconds, the clock of Request.arrival_s.

    Raises:
        ConfigError: config and cache disagree about the page size.
    """

    def __init__(self, config: SchedulerConfig, cache: CacheManager, clock: Callable[[], float]) -> None:
        if config.page_size != cache.page_size:
            raise ConfigError(
                f"page_size={config.page_size} in the scheduler, {cache.page_size} in the cache: give one value"
            )
        self._state = SchedulerState(
            config=config,
            cache=cache,
            clock=clock,
            rows=RowPool(config.max_rows),
            tally=Tally(num_accepted_per_position=[0] * config.draft_len),
        )

    @property
    def draft_len(self) -> int:
        """K of every step."""
        return self._state.config.draft_len

    @property
    def has_work(self) -> bool:
        """Whether a request waits or runs, or a step is in flight."""
        state = self._state
        return bool(state.queue or state.running or state.launched)

    @property
    def num_waiting(self) -> int:
        """Requests without a row."""
        return len(self._state.queue)

    @property
    def num_running(self) -> int:
        """Requests with a row."""
        return len(self._state.running)

    @property
    def num_steps_in_flight(self) -> int:
        """Plans whose results are not committed."""
        return len(self._state.launched)

    @property
    def request_ids(self) -> tuple[str, ...]:
        """Every request that waits or runs, oldest first."""
        state = self._state
        return tuple(item.ledger.request_id for item in (*state.by_age(), *state.queue))

    def check(self, request: Request) -> None:
        """Refuse what `submit` would refuse, and queue nothing.

        Raises:
            RequestError: an empty prompt, or an id in flight.
            ContextLengthError: it could never fit.
        """
        check_request(self._state, request)

    def submit(self, request: Request) -> None:
        """Queue a request.

        Raises:
            RequestError: an empty prompt, or an id in flight.
            ContextLengthError: it could never fit.
        """
        state = self._state
        check_request(state, request)
        state.queue.push(Waiting(Ledger.open(request, state.next_order)))
        state.next_order += 1

    def abort(self, request_id: str) -> RequestOutput | None:
        """End a request now; return its last news, or None when it is unknown.

        What steps in flight emit for it is dropped. Its row and pages are reusable when they have retired.
        """
        state = self._state
        waiting = state.queue.remove(request_id)
        if waiting is not None:
            return Finished(waiting.ledger, "abort").final_output(state.clock())
        for running in state.running.values():
            if running.ledger.request_id == request_id:
                return state.finish(running, "abort").final_output(state.clock())
        return None

    def plan(self) -> StepPlan | None:
        """Return the next step to run, or None when no row can do anything before a commit.

        Raises:
            EngineError: max_steps_in_flight steps are uncommitted.
        """
        return make_plan(self._state)

    def commit(self, result: StepResult) -> list[RequestOutput]:
        """Take in the result of the oldest step in flight; return what its requests got.

        Raises:
            EngineError: the result does not belong to that step's plan.
        """
        return commit_result(self._state, result)

    def commit_ladders(self, result: StepResult) -> list[RequestOutput]:
        """Take in the decode rows of the oldest step in flight before its chunks; `commit` takes the rest.

        Raises:
            EngineError: the result does not belong to that step's plan.
        """
        return commit_ladders(self._state, result)

    def stats(self) -> EngineStats:
        """Return gauges and counters."""
        state, counts = self._state, self._state.cache.counts
        counters = {item.name: getattr(state.tally, item.name) for item in fields(state.tally)}
        counters["num_accepted_per_position"] = tuple(state.tally.num_accepted_per_position)
        return EngineStats(
            num_running=len(state.running),
            num_waiting=len(state.queue),
            num_free_pages=counts.num_free,
            num_cached_pages=counts.num_cached,
            num_pages=counts.num_pages,
            **counters,
        )
