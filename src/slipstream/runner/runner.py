"""Execute step plans. The runner follows a plan to the letter and never changes one.

`submit` launches and returns; `collect` waits, in `handoff`. With overlap the caller submits step N+1 before it
collects step N; both work on the same rows, in order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

import torch

from slipstream.base.errors import EngineError
from slipstream.config.bytes import TARGET_GROUP
from slipstream.runner import handoff, step
from slipstream.runner.edit_rows import ALL_NEEDS, NO_NEEDS, EditNeeds
from slipstream.runner.graphs import LadderGraphs
from slipstream.runner.handoff import PendingRuns, StepHandle
from slipstream.runner.inputs import chunk_batch, ladder_batch
from slipstream.runner.prompts import PendingPrompt, prompt_asks
from slipstream.runner.step import BatchChoice, StepParts
from slipstream.sampling.classes import SamplingClass, sampling_class_of
from slipstream.wire.step import PageEdit, PrefillChunk, RowStart, StepPlan, StepResult

_SHORT_CHUNK = 64
"""Prompt tokens of a short chunk: kernels that are cut for ladders serve it too."""


class Runner:
    """The device side of an engine, driven by plans.

    Args:
        parts: built by `runner.build`.
        draft_len: K of the longest rung.
        device: where the tensors live.
        graphs: whole decode steps to capture and replay; None launches every step piece by piece.
        prefill_chunk_tokens: most prompt tokens of a step; warm-up runs a chunk of that size.
    """

    def __init__(
        self,
        parts: StepParts,
        *,
        draft_len: int,
        device: torch.device,
        graphs: LadderGraphs | None = None,
        prefill_chunk_tokens: int = 0,
    ) -> None:
        self._parts = parts
        self._draft_len = draft_len
        self._device = device
        self._graphs = graphs
        self._prefill_chunk_tokens = prefill_chunk_tokens
        # An engine that cannot reject couples every request.
        self._can_reject = parts.can_reject
        self._starts_host: dict[int, RowStart] = {}
        self._needs_host: dict[int, EditNeeds] = {}

    @torch.inference_mode()
    def submit(self, plan: StepPlan) -> StepHandle:
        """Launch one step. Nothing waits, except that a step with constrained rows waits for the one before it.

        Raises:
            EngineError: the plan asks for more drafts than the rows hold, or a constrained row has no grammar.
        """
        if plan.draft_len > self._draft_len:
            raise EngineError(f"a plan asks for {plan.draft_len} drafts, the rows hold {self._draft_len}")
        self._apply_starts(plan.starts, plan.page_edits)
        pending: list[PendingRuns] = []
        if plan.decode_rows:
            # Sent before the chunks are launched: decoding rows do not wait for somebody's prompt.
            pending.append(handoff.send(self._run_ladders(plan.decode_rows, plan.draft_len)))
        prompts: tuple[PendingPrompt, ...] = ()
        if plan.chunks:
            runs, prompts = self._run_chunks(plan.chunks)
            if runs is not None:
                pending.append(handoff.send(runs))
            prompts = handoff.send_prompts(prompts)
        return StepHandle(step_id=plan.step_id, pending=tuple(pending), prompts=prompts)

    def collect_ladders(self, handle: StepHandle) -> tuple[StepResult, StepHandle]:
        """Wait for the decode part of a launched step that has one; return its runs, and the handle of the rest."""
        return handoff.collect_first(handle)

    def collect(self, handle: StepHandle) -> StepResult:
        """Wait for a launched step, or for what is left of it, and return its results."""
        return handoff.collect(handle)

    @torch.inference_mode()
    def warm_up(self, on_progress: Callable[[int, int], None] | None = None) -> None:
        """Run the decode step on padding, and prompts on the scratch row: code loads, no request's row or page changes.

        Args:
            on_progress: told how many of how many graphs are captured.
        """
        scratch = torch.full((1,), self._parts.rows.scratch_row, dtype=torch.int64, device=self._device)
        batch = ladder_batch(self._parts.rows, self._parts.tables, scratch, self._draft_len, self._parts.page_size)
        for sampling_class in SamplingClass:
            for has_rejection in (False, True)[: 1 + self._can_reject]:
                choice = BatchChoice((), sampling_class, (), has_rejection=has_rejection)
                step.run_ladders(self._parts, batch, choice)
        choice = BatchChoice((), SamplingClass.FULL, ())
        step.run_ladders(self._parts, batch, choice, self._parts.grammars.free_masks(1, self._draft_len))
        if self._device.type != "cuda":
            return
        for num_tokens in sorted({1, min(_SHORT_CHUNK, self._prefill_chunk_tokens), self._prefill_chunk_tokens} - {0}):
            self._warm_up_chunk(num_tokens)
        if self._graphs is not None:
            self._graphs.capture(on_progress or _ignore)

    def _warm_up_chunk(self, num_tokens: int) -> None:
        """Compute a prompt in the scratch row, which owns no page, and leave the row as it was."""
        rows = self._parts.rows
        scratch = rows.scratch_row
        state = [getattr(rows, field.name) for field in fields(rows)]
        before = [values[scratch].clone() for values in state]
        chunk = PrefillChunk(row=scratch, start=0, end=num_tokens, is_last=True)
        batch = chunk_batch(rows, self._parts.tables, (chunk,), self._parts.page_size, self._device)
        plain = BatchChoice((), SamplingClass.FULL, (), has_rejection=self._can_reject)
        step.run_chunks(self._parts, batch, (True,), plain)
        # A first token may need everything that a ladder may, on one row instead of several.
        self._parts.edits.allocate()
        wishes = BatchChoice((), SamplingClass.FULL, (True,), (1,), has_rejection=self._can_reject, needs=ALL_NEEDS)
        step.run_chunks(self._parts, batch, (True,), wishes, (), self._parts.grammars.free_masks(1, 0))
        for values, value in zip(state, before, strict=True):
            values[scratch] = value

    def _apply_starts(self, starts: tuple[RowStart, ...], edits: tuple[PageEdit, ...]) -> None:
        parts = self._parts
        prefix_pages = {start.row: start.num_computed_tokens // parts.page_size for start in starts}
        for start in starts:
            parts.rows.start(start)
            parts.tables.clear(start.row)
            self._starts_host[start.row] = start
            self._needs_host[start.row] = parts.edits.start(start)
            parts.grammars.start(start)
        for edit in edits:
            parts.tables.write(edit.group, edit.row, edit.first, edit.pages)
            num_shared = prefix_pages.get(edit.row, 0)
            if parts.pools.poison:
                num_kept = max(num_shared - edit.first, 0)
                parts.pools.poison_pages(edit.group, list(edit.pages[num_kept:]))
            if edit.group == TARGET_GROUP and 0 <= num_shared - 1 - edit.first < len(edit.pages):
                step.restore_carry_tap(parts, edit.row, num_shared, edit.pages[num_shared - 1 - edit.first])

    def _run_ladders(self, decode_rows: tuple[int, ...], draft_len: int) -> PendingRuns:
        parts, choice = self._parts, self._choice(decode_rows)
        graphs = self._graphs if draft_len == self._draft_len else None
        if graphs is not None and not parts.grammars.has_any(decode_rows):
            replayed = graphs.replay(decode_rows, choice)
            if replayed is not None:
                return replayed
        rows = torch.tensor(decode_rows, dtype=torch.int64, device=self._device)
        batch = ladder_batch(parts.rows, parts.tables, rows, draft_len, parts.page_size)
        masks = parts.grammars.before_ladders(decode_rows, batch.base_positions, batch.draft_tokens, parts.rows.history)
        if graphs is not None:
            replayed = graphs.replay_pair(decode_rows, choice, masks)
            if replayed is not None:
                return replayed
        return step.run_ladders(parts, batch, choice, masks)

    def _run_chunks(self, chunks: tuple[PrefillChunk, ...]) -> tuple[PendingRuns | None, tuple[PendingPrompt, ...]]:
        batch = chunk_batch(self._parts.rows, self._parts.tables, chunks, self._parts.page_size, self._device)
        is_last = tuple(chunk.is_last for chunk in chunks)
        last_rows = tuple(chunk.row for chunk in chunks if chunk.is_last)
        asks = prompt_asks(chunks, self._starts_host)
        masks = self._parts.grammars.before_first_tokens(last_rows)
        return step.run_chunks(self._parts, batch, is_last, self._choice(last_rows), asks, masks)

    def _choice(self, rows: tuple[int, ...]) -> BatchChoice:
        starts = [self._starts_host[row] for row in rows]
        params = [start.sampling for start in starts]
        needs = NO_NEEDS
        for row in rows:
            needs |= self._needs_host[row]
        return BatchChoice(
            rows=rows,
            sampling_class=sampling_class_of(params),
            wants_logprobs=tuple(one.logprobs is not None for one in params),
            num_top=tuple(one.logprobs or 0 for one in params),
            has_rejection=self._can_reject
            and any(start.verification == "rejection" and not start.sampling.is_greedy for start in starts),
            needs=needs,
        )


def _ignore(done: int, total: int) -> None:
    del done, total
