"""Take in one step's result: append tokens, cut them at a stop or limit, publish, trim, end.

A step's ladders may be taken in before its chunks are done; the step retires with the chunks.

A result is read against the plan that was made for its step: a run belongs to the request that owned the row then. If
that request has ended since, its run is dropped; a row never gets tokens of an earlier owner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from slipstream.base.errors import EngineError
from slipstream.scheduler.lifecycle import Decoding, Ledger, Prefilling
from slipstream.scheduler.state import LaunchedStep, PlannedRow, SchedulerState
from slipstream.wire.messages import FinishReason, RequestOutput
from slipstream.wire.step import StepResult, TokenRun


class RunCut(NamedTuple):
    """How much of a run is returned, and whether it ends the request."""

    num_kept: int
    finish_reason: FinishReason | None
    stop_reason: int | None


def cut_run(ledger: Ledger, token_ids: Sequence[int]) -> RunCut:
    """Return where a run ends: at its first stop token, or at the limit, whichever comes first.

    The stop token itself is kept. A token that is both at the limit and a stop is a stop.
    """
    num_known = len(ledger.tokens)
    for num_kept, token in enumerate(token_ids, 1):
        if token in ledger.stop_token_ids:
            is_own_end = token in ledger.request.eos_token_ids
            return RunCut(num_kept, "stop", None if is_own_end else token)
        if num_known + num_kept == ledger.max_seq_len:
            return RunCut(num_kept, "length", None)
    return RunCut(len(token_ids), None, None)


def commit_result(state: SchedulerState, result: StepResult) -> list[RequestOutput]:
    """Retire the oldest step in flight and return the news of its requests, in plan order.

    Args:
        state: the scheduler's.
        result: of the whole step, or of its chunks when its ladders were committed before.

    Raises:
        EngineError: the result is not of that step, or its runs are not those of the plan.
    """
    step = _oldest(state, result)
    runs = _match_runs(step, step.rows, result.runs)
    state.launched.popleft()
    state.cache.on_retired(step.step_id)
    state.rows.on_retired(step.step_id)
    state.tally.num_steps += 1
    state.tally.num_step_tokens += step.num_tokens
    outputs = _commit_rows(state, step, step.rows, runs, result)
    # The youngest first: each goes before all that wait.
    for running in reversed(state.by_age()):
        if running.is_leaving and not running.flights:
            state.preempt(running)
    return outputs


def commit_ladders(state: SchedulerState, result: StepResult) -> list[RequestOutput]:
    """Take in the ladders of the oldest step in flight, which has chunks too, and return their news.

    The step stays in flight: no row or page that it uses is free before its chunks are committed.

    Args:
        state: the scheduler's.
        result: the runs of the decode rows alone.

    Raises:
        EngineError: as `commit_result`.
    """
    step = _oldest(state, result)
    ladders = tuple(planned for planned in step.rows if planned.is_ladder)
    runs = _match_runs(step, ladders, result.runs)
    state.launched[0] = replace(step, rows=tuple(planned for planned in step.rows if not planned.is_ladder))
    return _commit_rows(state, step, ladders, runs, result)


def _oldest(state: SchedulerState, result: StepResult) -> LaunchedStep:
    if not state.launched or state.launched[0].step_id != result.step_id:
        expected = state.launched[0].step_id if state.launched else "none"
        raise EngineError(f"got the result of step {result.step_id}, but the oldest step in flight is {expected}")
    return state.launched[0]


def _commit_rows(
    state: SchedulerState,
    step: LaunchedStep,
    rows: Sequence[PlannedRow],
    runs: Sequence[TokenRun | None],
    result: StepResult,
) -> list[RequestOutput]:
    prompt_runs = {run.row: run for run in result.prompt_runs}
    outputs: list[RequestOutput] = []
    for planned, run in zip(rows, runs, strict=True):
        running = state.running.get(planned.row)
        if running is None or running.ledger is not planned.ledger:
            continue
        flight = running.flights.popleft()
        assert flight.step_id == step.step_id
        if flight.chunk_end is not None:
            running.num_computed_tokens = flight.chunk_end
        if planned.row in prompt_runs:
            running.ledger.note_prompt(prompt_runs[planned.row])
        if run is not None:
            outputs.append(_commit_run(state, running, planned, run))
        else:
            state.cache.publish(running.row, running.ledger.tokens, running.num_computed_tokens)
    return outputs


def _match_runs(step: LaunchedStep, rows: Sequence[PlannedRow], runs: Sequence[TokenRun]) -> list[TokenRun | None]:
    """Return one run per planned row, None where the plan expects none."""
    expected = [planned.row for planned in rows if planned.is_emitting]
    if [run.row for run in runs] != expected:
        raise EngineError(
            f"step {step.step_id} returned runs of rows {[run.row for run in runs]}, planned were {expected}"
        )
    matched: list[TokenRun | None] = []
    remaining = iter(runs)
    for planned in rows:
        run = next(remaining) if planned.is_emitting else None
        if run is not None and run.is_finite:
            max_drafts = step.draft_len if planned.is_ladder else 0
            if (
                len(run.token_ids) != run.num_accepted + 1
                or not 0 <= run.num_accepted <= run.num_draft_tokens <= max_drafts
                or len(run.logprobs) not in (0, len(run.token_ids))
                or len(run.top_logprobs) not in (0, len(run.token_ids))
            ):
                raise EngineError(
                    f"step {step.step_id}, row {planned.row}: {len(run.token_ids)} tokens, "
                    f"{len(run.logprobs)} and {len(run.top_logprobs)} logprobs, "
                    f"{run.num_accepted} of {run.num_draft_tokens} drafts accepted do not fit together; "
                    f"at most {max_drafts} drafts are verified, and one token follows the accepted"
                )
        matched.append(run)
    return matched


def _commit_run(
    state: SchedulerState, running: Prefilling | Decoding, planned: PlannedRow, run: TokenRun
) -> RequestOutput:
    """Append what one row emitted and return the request's news."""
    # INVARIANT: a row that emits has all its known tokens planned, so it is decoding.
    assert isinstance(running, Decoding)
    ledger, now_s = running.ledger, state.clock()
    if run.error is not None:
        # What was computed is sound: only the constraint has no way on.
        finished = state.finish(running, "error", error=run.error, error_code=run.error_code)
        return finished.final_output(now_s)
    if not run.is_finite:
        state.tally.num_corrupted_requests += 1
        state.cache.forget(running.row)
        finished = state.finish(
            running,
            "error",
            error="the model's logits were not finite, or the request allowed no token; it was ended, others go on",
        )
        return finished.final_output(now_s)
    cut = cut_run(ledger, run.token_ids)
    kept = run.token_ids[: cut.num_kept]
    num_accepted = min(run.num_accepted, len(kept))
    if planned.is_ladder:
        # Tokens past a cut are computed too, but nobody knows them: they count for neither length nor prefix.
        num_written = running.num_computed_tokens + len(run.token_ids)
        running.num_computed_tokens = min(num_written, len(ledger.tokens) + len(kept))
    ledger.tokens.extend(kept)
    _count_run(state, ledger, planned, run, len(kept), num_accepted)
    if ledger.first_token_s is None:
        ledger.first_token_s = now_s
    state.cache.publish(running.row, ledger.tokens, running.num_computed_tokens)
    is_verify_step = planned.is_ladder and state.config.draft_len > 0
    logprobs, top_logprobs = run.logprobs[: cut.num_kept], run.top_logprobs[: cut.num_kept]
    if cut.finish_reason is not None:
        return state.finish(running, cut.finish_reason, stop_reason=cut.stop_reason).final_output(
            now_s,
            token_ids=kept,
            num_draft_tokens=run.num_draft_tokens,
            num_accepted=num_accepted,
            is_verify_step=is_verify_step,
            logprobs=logprobs,
            top_logprobs=top_logprobs,
        )
    state.cache.trim(running.row, running.num_reserved_tokens(state.config.draft_len), running.last_step)
    num_prefix_hit_tokens = 0 if ledger.has_output else ledger.num_prefix_hit_tokens
    prompt_news = ledger.prompt_news
    ledger.has_output = True
    return RequestOutput(
        request_id=ledger.request_id,
        token_ids=kept,
        num_draft_tokens=run.num_draft_tokens,
        num_accepted=num_accepted,
        is_verify_step=is_verify_step,
        logprobs=logprobs,
        top_logprobs=top_logprobs,
        prompt_logprobs=prompt_news.logprobs,
        prompt_top_logprobs=prompt_news.top_logprobs,
        num_prefix_hit_tokens=num_prefix_hit_tokens,
    )


def _count_run(
    state: SchedulerState, ledger: Ledger, planned: PlannedRow, run: TokenRun, num_kept: int, num_accepted: int
) -> None:
    state.tally.num_generated_tokens += num_kept
    if ledger.first_token_s is None:
        state.tally.num_prompt_tokens += len(ledger.request.prompt_token_ids)
        state.tally.num_cached_prompt_tokens += ledger.num_prefix_hit_tokens
    if planned.is_ladder:
        state.tally.count_ladder(run.num_draft_tokens, num_accepted)
