"""The one place that waits for the device: results of a step become integers here.

Everything else in the data plane leaves tensors where they are (CPU reference kernels are the device, and exempt).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from slipstream.runner.prompts import PendingPrompt
from slipstream.sampling.logprobs import TopLogprobs
from slipstream.wire.step import Alternatives, PromptRun, StepResult, TokenRun


@dataclass(frozen=True, slots=True)
class PendingRuns:
    """Device results of one batch of rows, not read yet."""

    rows: tuple[int, ...]  # request row of each batch entry; padding entries left out at the end
    emitted: Tensor  # [num_reqs, query_len] int64
    num_accepted: Tensor  # [num_reqs] int64
    num_draft_tokens: Tensor  # [num_reqs] int64; drafts that were verified, placeholders not counted
    is_finite: Tensor  # [num_reqs] bool
    logprobs: Tensor | None  # [num_reqs, query_len] float32, None when nobody asked
    wants_logprobs: tuple[bool, ...]  # per entry of rows
    top: TopLogprobs | None = None  # [num_reqs, query_len, num_top]; None when nobody asked
    num_top: tuple[int, ...] = ()  # alternatives wanted per entry of rows; read only where `top` is there


@dataclass(frozen=True, slots=True)
class StepHandle:
    """A launched step."""

    step_id: int
    pending: tuple[PendingRuns, ...]
    prompts: tuple[PendingPrompt, ...] = ()


def collect(handle: StepHandle) -> StepResult:
    """Wait for a launched step and read its results."""
    runs = tuple(run for pending in handle.pending for run in _read(pending))
    prompt_runs = tuple(_read_prompt(pending) for pending in handle.prompts)
    return StepResult(step_id=handle.step_id, runs=runs, prompt_runs=prompt_runs)


def read_integers(values: Tensor) -> list[Any]:
    """Wait for an integer tensor and return it as a list, nested by axis."""
    return values.tolist()


def _read(pending: PendingRuns) -> list[TokenRun]:
    emitted, accepted = pending.emitted.tolist(), pending.num_accepted.tolist()
    drafted, finite = pending.num_draft_tokens.tolist(), pending.is_finite.tolist()
    logprobs = pending.logprobs.tolist() if pending.logprobs is not None else None
    top = _alternatives(pending.top) if pending.top is not None else None
    runs: list[TokenRun] = []
    for index, row in enumerate(pending.rows):
        num_emitted = accepted[index] + 1
        wanted = logprobs is not None and pending.wants_logprobs[index]
        num_top = pending.num_top[index] if top is not None else 0
        runs.append(
            TokenRun(
                row=row,
                token_ids=tuple(emitted[index][:num_emitted]),
                num_draft_tokens=drafted[index],
                num_accepted=accepted[index],
                logprobs=tuple(logprobs[index][:num_emitted]) if wanted and logprobs is not None else (),
                is_finite=finite[index],
                top_logprobs=tuple(one[:num_top] for one in top[index][:num_emitted]) if top and num_top else (),
            )
        )
    return runs


def _read_prompt(pending: PendingPrompt) -> PromptRun:
    top = _alternatives(pending.top) if pending.top is not None else []
    return PromptRun(
        row=pending.row, first=pending.first, logprobs=tuple(pending.logprobs.tolist()), top_logprobs=tuple(top)
    )


def _alternatives(top: TopLogprobs) -> list[Any]:
    """Return (token id, log-probability) pairs per position, nested as the leading axes are."""

    def pair(ids: list[Any], values: list[Any]) -> Alternatives | list[Any]:
        if ids and isinstance(ids[0], list):
            return [pair(*both) for both in zip(ids, values, strict=True)]
        return tuple(zip(ids, values, strict=True))

    return [pair(*both) for both in zip(top.token_ids.tolist(), top.logprobs.tolist(), strict=True)]
