"""Whole decode steps as CUDA graphs, one per rung, captured before the first request.

A rung is a number of rows with the most general sampling that they may need; a smaller batch is padded with the
scratch row, which writes nothing. What a rung cannot stand for (edits of logits, log-probabilities, structured output)
runs the same step launch by launch. Not here: what a step is (`step`), reading results (`handoff`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from slipstream.runner.edit_rows import NO_NEEDS
from slipstream.runner.handoff import PendingRuns
from slipstream.runner.inputs import ladder_batch
from slipstream.runner.step import BatchChoice, StepParts, run_ladders
from slipstream.sampling.classes import SamplingClass

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

    @property
    def num_graphs(self) -> int:
        """Graphs that were captured."""
        return len(self._captured)

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
        stream = torch.cuda.Stream(self._device)
        pool = torch.cuda.graph_pool_handle()
        stream.wait_stream(torch.cuda.current_stream(self._device))
        for done, rung in enumerate(rungs):
            on_progress(done, len(rungs))
            batch_rows = torch.full((rung.num_rows,), self._parts.rows.scratch_row, device=self._device)
            with torch.cuda.stream(stream):
                for _ in range(_NUM_DRY_RUNS):
                    self._step(rung, batch_rows)
            stream.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool, stream=stream):
                pending = self._step(rung, batch_rows)
            self._captured[rung] = _Captured(graph, batch_rows, pending)
        torch.cuda.current_stream(self._device).wait_stream(stream)
        on_progress(len(rungs), len(rungs))

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
        padded = (*rows, *[self._parts.rows.scratch_row] * (rung.num_rows - len(rows)))
        captured.batch_rows.copy_(torch.tensor(padded, dtype=torch.int64, pin_memory=True), non_blocking=True)
        captured.graph.replay()
        return replace(captured.pending, rows=choice.rows, wants_logprobs=choice.wants_logprobs, num_top=choice.num_top)

    def rung_of(self, num_rows: int, choice: BatchChoice) -> Rung | None:
        """Return the rung that stands for a batch of so many rows, or None."""
        if choice.needs != NO_NEEDS or any(choice.wants_logprobs):
            return None
        fitting = next(rung for rung in self._row_rungs if rung >= num_rows)
        return Rung(fitting, choice.sampling_class, choice.has_rejection)

    def _step(self, rung: Rung, batch_rows: Tensor) -> PendingRuns:
        parts = self._parts
        batch = ladder_batch(parts.rows, parts.tables, batch_rows, self._draft_len, parts.page_size)
        choice = BatchChoice((), rung.sampling_class, (), has_rejection=rung.has_rejection)
        return run_ladders(parts, batch, choice)
