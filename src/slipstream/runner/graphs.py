"""Decode steps as CUDA graphs, one per rung, captured before the first request.

A rung is a number of rows with the most general sampling that they may need; a smaller batch is padded with the
scratch row, which writes nothing. Plain sampling has one graph for the whole step. Whatever else a row may ask for
(edits of logits, log-probabilities, structured output) is served by two graphs per number of rows, which do it all:
the forward, and behind the host's masks the rest. The rest exists twice, without and with alternatives per position, as
many as a request may ask for. Not here: what a step is (`step`), reading results (`handoff`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from slipstream.runner.edit_rows import ALL_NEEDS, NO_NEEDS
from slipstream.runner.grammar_rows import LadderMasks, PendingMasks
from slipstream.runner.handoff import PendingRuns
from slipstream.runner.inputs import LadderBatch, ladder_batch
from slipstream.runner.step import BatchChoice, StepParts, finish_ladders, forward_ladders, run_ladders
from slipstream.sampling.classes import SamplingClass
from slipstream.sampling.logprobs import TopLogprobs
from slipstream.wire.sampling_params import MAX_LOGPROBS

_NUM_DRY_RUNS = 2
"""Steps before a capture: the first compiles and chooses library kernels, the second shows that nothing is left."""


@dataclass(frozen=True, slots=True)
class Rung:
    """What one graph stands for."""

    num_rows: int
    sampling_class: SamplingClass
    has_rejection: bool


@dataclass(frozen=True, slots=True)
class _Captured:
    graph: torch.cuda.CUDAGraph
    batch_rows: Tensor  # [num_rows] int64; written before every replay
    pending: PendingRuns


@dataclass(frozen=True, slots=True)
class _CapturedPair:
    forward: torch.cuda.CUDAGraph
    batch_rows: Tensor  # [num_rows] int64; written before every replay
    masks: LadderMasks  # written between the two
    finish: _Finish
    finish_with_top: _Finish


@dataclass(frozen=True, slots=True)
class _Finish:
    """The second graph of a pair."""

    graph: torch.cuda.CUDAGraph
    pending: PendingRuns


def row_rungs(max_rows: int) -> tuple[int, ...]:
    """Return the numbers of rows that graphs exist for, ascending: 1, 2, 4, 8, then steps of 8, up to the engine's.

    Args:
        max_rows: requests that can run at once.
    """
    steps = [1, 2, 4, *range(8, max_rows, 8)]
    return tuple(sorted({rows for rows in steps if rows < max_rows} | {max_rows}))


class LadderGraphs:
    """The graphs of one runner.

    Args:
        parts: what a step works on.
        max_rows: requests that can run at once.
        draft_len: K of every rung.
        device: a CUDA device.
    """

    def __init__(self, parts: StepParts, *, max_rows: int, draft_len: int, device: torch.device) -> None:
        self._parts = parts
        self._draft_len = draft_len
        self._can_reject = parts.can_reject
        self._device = device
        self._row_rungs = row_rungs(max_rows)
        self._captured: dict[Rung, _Captured] = {}
        self._pairs: dict[int, _CapturedPair] = {}

    @property
    def num_graphs(self) -> int:
        """Graphs that were captured."""
        return len(self._captured) + 3 * len(self._pairs)

    def rungs(self) -> Iterator[Rung]:
        """Yield every rung, the largest first: later graphs then fit into the memory of earlier ones."""
        for num_rows in reversed(self._row_rungs):
            for sampling_class in SamplingClass:
                yield Rung(num_rows, sampling_class, has_rejection=False)
                if self._can_reject and sampling_class is not SamplingClass.GREEDY:
                    yield Rung(num_rows, sampling_class, has_rejection=True)

    def capture(self, on_progress: Callable[[int, int], None]) -> None:
        """Capture every rung. Works on padding only, so no row and no page is different afterwards.

        Args:
            on_progress: told how many of how many rungs are done.
        """
        rungs = list(self.rungs())
        num_graphs = len(rungs) + 3 * len(self._row_rungs)
        self._parts.edits.allocate()
        stream = torch.cuda.Stream(self._device)
        pool = torch.cuda.graph_pool_handle()
        stream.wait_stream(torch.cuda.current_stream(self._device))
        for rung in rungs:
            on_progress(self.num_graphs, num_graphs)
            self._captured[rung] = self._capture_rung(rung, stream, pool)
        for num_rows in reversed(self._row_rungs):
            on_progress(self.num_graphs, num_graphs)
            self._pairs[num_rows] = self._capture_pair(num_rows, stream, pool)
        torch.cuda.current_stream(self._device).wait_stream(stream)
        on_progress(num_graphs, num_graphs)

    def _capture_rung(self, rung: Rung, stream: torch.cuda.Stream, pool: Any) -> _Captured:
        batch_rows = self._padding(rung.num_rows)
        # HAZARD: the padding was written on another stream; without this a dry run may commit to any row that it finds.
        stream.wait_stream(torch.cuda.current_stream(self._device))
        choice = BatchChoice((), rung.sampling_class, (), has_rejection=rung.has_rejection)
        with torch.cuda.stream(stream):
            for _ in range(_NUM_DRY_RUNS):
                run_ladders(self._parts, self._batch(batch_rows), choice)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool, stream=stream):
            pending = run_ladders(self._parts, self._batch(batch_rows), choice)
        return _Captured(graph, batch_rows, pending)

    def _capture_pair(self, num_rows: int, stream: torch.cuda.Stream, pool: Any) -> _CapturedPair:
        batch_rows = self._padding(num_rows)
        shape = (num_rows, self._draft_len + 1, self._parts.grammars.num_words)
        masks = LadderMasks(
            allowed=torch.full(shape, -1, dtype=torch.int32, device=self._device),
            max_accepted=torch.full((num_rows,), self._draft_len, device=self._device),
            is_constrained=(),
            faults=(),
        )
        stream.wait_stream(torch.cuda.current_stream(self._device))
        # INVARIANT: a request that asks for none of this keeps its bits: every edit has a neutral value.
        plain = BatchChoice((), SamplingClass.FULL, (True,), has_rejection=self._can_reject, needs=ALL_NEEDS)
        choices = (plain, replace(plain, num_top=(MAX_LOGPROBS,)))
        with torch.cuda.stream(stream):
            for _ in range(_NUM_DRY_RUNS):
                for choice in choices:
                    finish_ladders(self._parts, forward_ladders(self._parts, self._batch(batch_rows)), choice, masks)
        stream.synchronize()
        forward = torch.cuda.CUDAGraph()
        with torch.cuda.graph(forward, pool=pool, stream=stream):
            ladders = forward_ladders(self._parts, self._batch(batch_rows))
        finishes: list[_Finish] = []
        for choice in choices:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool, stream=stream):
                pending = finish_ladders(self._parts, ladders, choice, masks)
            finishes.append(_Finish(graph, pending))
        return _CapturedPair(forward, batch_rows, masks, *finishes)

    def replay(self, rows: tuple[int, ...], choice: BatchChoice) -> PendingRuns | None:
        """Launch the step of some rows, or return None when no graph stands for it.

        Args:
            rows: decoding rows, at least one.
            choice: what the host chose for them.

        Returns:
            Unread results. They lie in the graph's own memory: hand them over before the next replay.
        """
        rung = self.rung_of(len(rows), choice)
        captured = self._captured.get(rung) if rung is not None else None
        if rung is None or captured is None:
            return None
        self._write_rows(captured.batch_rows, rows)
        captured.graph.replay()
        return replace(captured.pending, rows=choice.rows, wants_logprobs=choice.wants_logprobs, num_top=choice.num_top)

    def replay_pair(
        self, rows: tuple[int, ...], choice: BatchChoice, pending_masks: PendingMasks | None
    ) -> PendingRuns | None:
        """Launch the step of some rows in two parts, or return None when no graph stands for it.

        Args:
            rows: decoding rows, at least one.
            choice: what the host chose for them.
            pending_masks: asked for before this call, when a row is constrained; filled behind the forward.

        Returns:
            As `replay`.
        """
        captured = self._pairs.get(self._fitting(len(rows)))
        if captured is None:
            return None
        most = max(choice.num_top, default=0)
        finish = captured.finish_with_top if most else captured.finish
        self._write_rows(captured.batch_rows, rows)
        captured.forward.replay()
        masks, num_rows = captured.masks, len(rows)
        constraints = None
        if pending_masks is None:
            masks.allowed.fill_(-1)
            masks.max_accepted.fill_(self._draft_len)
        else:
            filled = pending_masks.fill()
            masks.allowed[:num_rows].copy_(filled.allowed)
            masks.allowed[num_rows:].fill_(-1)
            masks.max_accepted[:num_rows].copy_(filled.max_accepted)
            assert finish.pending.constraints is not None
            constraints = replace(
                finish.pending.constraints, is_constrained=filled.is_constrained, faults=filled.faults
            )
        finish.graph.replay()
        top = finish.pending.top
        return replace(
            finish.pending,
            rows=choice.rows,
            wants_logprobs=choice.wants_logprobs,
            num_top=choice.num_top,
            top=None if top is None else TopLogprobs(top.token_ids[..., :most], top.logprobs[..., :most]),
            constraints=constraints,
        )

    def rung_of(self, num_rows: int, choice: BatchChoice) -> Rung | None:
        """Return the rung that stands for a batch of so many rows, or None."""
        if choice.needs != NO_NEEDS or any(choice.wants_logprobs):
            return None
        return Rung(self._fitting(num_rows), choice.sampling_class, choice.has_rejection)

    def _fitting(self, num_rows: int) -> int:
        return next(rung for rung in self._row_rungs if rung >= num_rows)

    def _padding(self, num_rows: int) -> Tensor:
        return torch.full((num_rows,), self._parts.rows.scratch_row, dtype=torch.int64, device=self._device)

    def _batch(self, batch_rows: Tensor) -> LadderBatch:
        parts = self._parts
        return ladder_batch(parts.rows, parts.tables, batch_rows, self._draft_len, parts.page_size)

    def _write_rows(self, batch_rows: Tensor, rows: tuple[int, ...]) -> None:
        padded = (*rows, *[self._parts.rows.scratch_row] * (len(batch_rows) - len(rows)))
        batch_rows.copy_(torch.tensor(padded, dtype=torch.int64, pin_memory=True), non_blocking=True)
