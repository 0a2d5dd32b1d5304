"""Rank 0's side of tensor parallelism: start the other ranks, run every step on all of them, notice when one is lost.

Rank 0 is the engine's own process: it alone schedules and it alone is read. The others (`worker`) get the same plans
over a local socket each and the same tensors through collectives, so they take the same decisions; in debug mode that
is checked after every step. Whatever goes wrong on any rank ends all of them with one error, in bounded time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import zmq

from slipstream.base.errors import EngineError, SlipstreamError
from slipstream.config.bytes import CacheGeometry
from slipstream.config.schema import EngineConfig
from slipstream.engine.rank_link import Worker, close_all, find_cause
from slipstream.engine.rank_setup import WorkerOrder, check_identity, identity_of
from slipstream.engine.spawn import start_process
from slipstream.engine.worker import Build
from slipstream.parallel.group import TensorParallelGroup, connect
from slipstream.parallel.mesh import Mesh
from slipstream.runner.agreement import StepProbe, probe_step, read_probe
from slipstream.runner.build import BuiltRunner, build_runner
from slipstream.runner.grammar_registry import GrammarRegistry
from slipstream.runner.handoff import StepHandle
from slipstream.wire.messages import Progress
from slipstream.wire.ranks import (
    Hello,
    Loaded,
    Meet,
    RowAgreement,
    RunStep,
    StepAgreement,
    ToWorker,
    WarmUp,
)
from slipstream.wire.step import StepPlan, StepResult

WORKER_MODULE = "slipstream.engine.worker"
TIMEOUT_S = 120.0
"""How long a rank waits for the others in a collective. A dead one is noticed at once; this is for one that hangs."""

START_TIMEOUT_S = 600.0
"""How long a worker may take to say hello, and to load."""


@dataclass(frozen=True, slots=True)
class RankChoices:
    """How ranks are made; tests put others in their place.

    Args:
        module: what a worker process runs.
        build: makes rank 0's runner.
        timeout_s: how long a rank waits for the others, to meet and in every collective.
    """

    module: str = WORKER_MODULE
    build: Build = build_runner
    timeout_s: float = TIMEOUT_S


class RankedRunner:
    """A runner whose every step runs on all ranks: the `StepRunner` of an engine with more than one.

    Args:
        built: rank 0's own part.
        workers: the other ranks.
        group: rank 0's place among them.
        check: compare the decisions of all ranks after every step.
        timeout_s: how long to wait for a rank's decisions.
    """

    def __init__(
        self, built: BuiltRunner, workers: list[Worker], group: TensorParallelGroup, *, check: bool, timeout_s: float
    ) -> None:
        self._built = built
        self._workers = workers
        self._group = group
        self._check = check
        self._timeout_s = timeout_s
        self._probes: dict[int, StepProbe] = {}
        self._is_closed = False

    @property
    def geometry(self) -> CacheGeometry:
        """Pools of one rank."""
        return self._built.geometry

    @property
    def grammars(self) -> GrammarRegistry:
        """Grammars of live requests; only this rank follows them."""
        return self._built.grammars

    def warm_up(self, on_progress: Callable[[int, int], None] | None = None) -> None:
        """Run the decode step once on a padding row, on all ranks.

        Raises:
            EngineError: a rank was lost.
        """
        self._run("the warm-up", WarmUp(), lambda: self._built.runner.warm_up(on_progress))

    def submit(self, plan: StepPlan) -> StepHandle:
        """Launch one step on all ranks.

        Raises:
            EngineError: a rank was lost, now or since the last step; then all are ended.
        """
        handle = self._run(f"step {plan.step_id}", RunStep(plan=plan), lambda: self._built.runner.submit(plan))
        if self._check:
            self._probes[plan.step_id] = probe_step(self._built.rows, plan, handle)
        return handle

    def collect_ladders(self, handle: StepHandle) -> tuple[StepResult, StepHandle]:
        """Wait for the decode part of a launched step; in debug mode ranks are compared when the rest is collected."""
        return self._built.runner.collect_ladders(handle)

    def collect(self, handle: StepHandle) -> StepResult:
        """Wait for a launched step and return rank 0's results.

        Raises:
            EngineError: in debug mode, another rank decided otherwise; then all are ended.
        """
        if self._check:
            with self._all_or_none(f"the check of step {handle.step_id}"):
                self._compare(handle.step_id)
        return self._built.runner.collect(handle)

    def close(self, grace_s: float = 5.0) -> None:
        """Leave the group and end the other ranks. May be called twice.

        Args:
            grace_s: seconds that they have for ending by themselves.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._group.close()
        close_all(self._workers, grace_s)

    def _run(self, what: str, message: ToWorker, own_part: Callable[[], Any]) -> Any:
        if self._is_closed:
            raise EngineError(f"{what} cannot run: the other ranks have been ended")
        with self._all_or_none(what):
            for worker in self._workers:
                worker.send(message)
            # A rank that died meanwhile is found by the first collective, and then asked after.
            return own_part()

    def _compare(self, step_id: int) -> None:
        own = read_probe(self._probes.pop(step_id))
        for worker in self._workers:
            theirs = worker.receive(StepAgreement, self._timeout_s)
            if theirs.step_id != step_id:
                raise EngineError(f"rank {worker.rank} reports step {theirs.step_id}, expected is {step_id}")
            difference = find_difference(own, theirs.rows, worker.rank)
            if difference is not None:
                raise EngineError(f"ranks disagree after step {step_id}: {difference}")

    @contextlib.contextmanager
    def _all_or_none(self, what: str) -> Iterator[None]:
        """End all ranks when anything goes wrong on this one, and say what came first."""
        try:
            yield
        except SlipstreamError as error:
            cause = find_cause(self._workers, error)
            self.close(grace_s=0.0)
            raise EngineError(f"{what} failed: {cause}") from error
        except BaseException:
            self.close(grace_s=0.0)
            raise


def start_ranks(
    config: EngineConfig,
    on_progress: Callable[[Progress], None],
    choices: RankChoices = RankChoices(),
) -> RankedRunner:
    """Start the other ranks, agree with them on what they are, meet, and load on all.

    Args:
        config: what to run on; more than one rank.
        on_progress: told of rank 0's loading.
        choices: how ranks are made.

    Returns:
        A runner that has not been warmed up.

    Raises:
        ConfigError: a rank runs on another configuration, environment or version.
        CheckpointError: a rank cannot load its part.
        CapacityError: a rank cannot allocate its pools.
        EngineError: a rank was lost.
    """
    tp_size, workers = config.parallel.tp_size, []
    identity = identity_of(config)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
    group: TensorParallelGroup | None = None
    try:
        on_progress(Progress(stage="ranks", done=1, total=tp_size))
        for rank in range(1, tp_size):
            order = WorkerOrder(config=config, rank=rank, timeout_s=choices.timeout_s)
            process = start_process(order, module=choices.module, title="its process")
            workers.append(Worker(rank, process, context))
        # INVARIANT: nobody waits for a rank that has not said hello, nor for one that runs on something else.
        for worker in workers:
            check_identity(worker.rank, worker.receive(Hello, START_TIMEOUT_S).identity, identity)
            on_progress(Progress(stage="ranks", done=1 + worker.rank, total=tp_size))
        place = f"file://{workers[0].process.folder}/meeting"
        for worker in workers:
            worker.send(Meet(init_method=place))
        group = connect(Mesh(tp_size, 0), init_method=place, backend="gloo", timeout_s=choices.timeout_s)
        built = choices.build(config, on_progress, group)
        for worker in workers:
            worker.receive(Loaded, START_TIMEOUT_S)
        return RankedRunner(built, workers, group, check=config.parallel.check_ranks, timeout_s=choices.timeout_s)
    except BaseException as error:
        cause = find_cause(workers, error)
        if group is not None:
            group.close()
        close_all(workers, 0.0)
        if cause is error:
            raise
        raise cause from error


def find_difference(own: tuple[RowAgreement, ...], theirs: tuple[RowAgreement, ...], rank: int) -> str | None:
    """Return the first difference between what rank 0 and another rank decided, or None.

    Args:
        own: rank 0's rows.
        theirs: the other rank's.
        rank: the other one.
    """
    if [one.row for one in own] != [one.row for one in theirs]:
        return f"rank 0 ran rows {[one.row for one in own]}, rank {rank} rows {[one.row for one in theirs]}"
    for ours, other in zip(own, theirs, strict=True):
        for field in ours.__struct_fields__:
            mine, its = getattr(ours, field), getattr(other, field)
            if mine != its:
                return f"row {ours.row}: {field} is {mine} on rank 0 and {its} on rank {rank}"
    return None
