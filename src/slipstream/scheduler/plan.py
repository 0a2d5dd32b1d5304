"""Make one step's plan: ladders first, then prompt chunks, then newcomers.

Everything is planned on bounds. A row that takes part owns pages for its known tokens, for every token that steps in
flight and this one may emit, and for the drafts made after that; never past its own limit.
"""

from __future__ import annotations

from slipstream.base.errors import EngineError
from slipstream.scheduler.admission import admit_waiting, make_room, prefilling_by_age
from slipstream.scheduler.budget import share_prefill_budget
from slipstream.scheduler.lifecycle import Decoding, Flight
from slipstream.scheduler.state import LaunchedStep, PlannedRow, SchedulerState
from slipstream.wire.step import PrefillChunk, StepPlan


def make_plan(state: SchedulerState) -> StepPlan | None:
    """Return the next step, noted as launched, or None when no row can do anything now.

    Raises:
        EngineError: as many steps as allowed are in flight.
    """
    config = state.config
    if len(state.launched) >= config.max_steps_in_flight:
        raise EngineError(
            f"a plan was asked for with {len(state.launched)} steps in flight: "
            f"commit one first, max_steps_in_flight is {config.max_steps_in_flight}"
        )
    ladders, is_short = _choose_ladders(state)
    starts = [] if is_short else admit_waiting(state)
    prompts = prefilling_by_age(state)
    grants = share_prefill_budget([prompt.num_remaining_tokens for prompt in prompts], config.prefill_chunk_tokens)
    step_id = state.next_step
    rows: list[PlannedRow] = []
    for decoding in sorted(ladders, key=lambda decoding: decoding.row):
        decoding.flights.append(Flight(step_id, None, config.query_len))
        decoding.last_step = step_id
        rows.append(PlannedRow(decoding.row, decoding.ledger, is_ladder=True, is_emitting=True))
    chunks: list[PrefillChunk] = []
    for prompt, grant in zip(prompts, grants, strict=True):
        if not grant:
            continue
        start, end = prompt.num_planned_tokens, prompt.num_planned_tokens + grant
        is_last = grant == prompt.num_remaining_tokens
        chunks.append(PrefillChunk(row=prompt.row, start=start, end=end, is_last=is_last))
        rows.append(PlannedRow(prompt.row, prompt.ledger, is_ladder=False, is_emitting=is_last))
        prompt.flights.append(Flight(step_id, end, int(is_last)))
        prompt.num_planned_tokens, prompt.last_step = end, step_id
        if is_last:
            row = prompt.row
            state.running[row] = prompt.to_decoding()
    if not rows:
        return None
    num_tokens = len(ladders) * config.query_len + sum(grants)
    state.launched.append(LaunchedStep(step_id, tuple(rows), config.draft_len, num_tokens))
    state.next_step += 1
    return StepPlan(
        step_id=step_id,
        starts=tuple(starts),
        page_edits=state.cache.take_edits(),
        decode_rows=tuple(planned.row for planned in rows if planned.is_ladder),
        chunks=tuple(chunks),
        draft_len=config.draft_len,
    )


def _choose_ladders(state: SchedulerState) -> tuple[list[Decoding], bool]:
    """Return the rows that decode, with their pages, and whether an older row was left without.

    Once a row is short, no younger row gets new pages: what becomes free is for the oldest.
    """
    ladders: list[Decoding] = []
    is_short = False
    for decoding in state.by_age():
        if (
            not isinstance(decoding, Decoding)
            or state.running.get(decoding.row) is not decoding
            or decoding.is_leaving
            or not decoding.can_advance
        ):
            continue
        num_tokens = decoding.num_reserved_tokens(state.config.draft_len, num_more_steps=1)
        num_missing = state.cache.num_missing(decoding.row, num_tokens)
        if num_missing:
            if is_short or not make_room(state, decoding, num_missing):
                is_short = True
                continue
            state.cache.ensure(decoding.row, num_tokens)
        ladders.append(decoding)
    return ladders, is_short
