"""The one place that waits for the device: results of a step become integers here.

Everything else in the data plane leaves tensors where they are (CPU reference kernels are the device, and exempt).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from slipstream.wire.step import StepResult, TokenRun


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


@dataclass(frozen=True, slots=True)
class StepHandle:
    """A launched step."""

    step_id: int
    pending: tuple[PendingRuns, ...]


def collect(handle: StepHandle) -> StepResult:
    """Wait for a launched step and read its results."""
    runs = tuple(run for pending in handle.pending for run in _read(pending))
    return StepResult(step_id=handle.step_id, runs=runs)


def _read(pending: PendingRuns) -> list[TokenRun]:
    emitted, accepted = pending.emitted.tolist(), pending.num_accepted.tolist()
    drafted, finite = pending.num_draft_tokens.tolist(), pending.is_finite.tolist()
    logprobs = pending.logprobs.tolist() if pending.logprobs is not None else None
    runs: list[TokenRun] = []
    for index, row in enumerate(pending.rows):
        num_emitted = accepted[index] + 1
        wanted = logprobs is not None and pending.wants_logprobs[index]
        runs.append(
            TokenRun(
                row=row,
                token_ids=tuple(emitted[index][:num_emitted]),
                num_draft_tokens=drafted[index],
                num_accepted=accepted[index],
                logprobs=tuple(logprobs[index][:num_emitted]) if wanted and logprobs is not None else (),
                is_finite=finite[index],
            )
        )
    return runs
