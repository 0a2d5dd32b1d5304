"""The one place that waits for the device: results of a step become integers here.

Everything else in the data plane leaves tensors where they are (CPU reference kernels are the device, and exempt).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from slipstream.runner.prompts import PendingPrompt
from slipstream.sampling.logprobs import TopLogprobs
from slipstream.wire.step import NO_TOKEN_CODE, Alternatives, PromptRun, StepResult, TokenRun

NO_TOKEN_LEFT = (
    "no token may come next: what the request's structured output allows here is forbidden by the request itself; "
    "loosen min_tokens, allowed_token_ids, logit_bias or bad_words, or the constraint"
)


@dataclass(frozen=True, slots=True)
class HostCopy:
    """Integers on their way to the host; the work that comes after them need not be waited for."""

    values: Tensor  # [...] integers; pinned where there is a device to copy from
    event: torch.cuda.Event | None  # None on a CPU, where the copy is made at once


@dataclass(frozen=True, slots=True)
class ConstraintNews:
    """What became of the constrained rows of a batch."""

    is_constrained: tuple[bool, ...]  # per entry of rows
    faults: tuple[str | None, ...]  # per entry of rows; why a constraint cannot go on
    is_empty: Tensor  # [num_reqs] bool; a row that emits allowed no token


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
    constraints: ConstraintNews | None = None  # None when no row of the batch is constrained
    event: torch.cuda.Event | None = None  # when it has happened the tensors, which then are the host's, can be read


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


def collect_first(handle: StepHandle) -> tuple[StepResult, StepHandle]:
    """Wait for the first part of a step alone: its runs, and the handle of the rest, which may still be computed."""
    first, *rest = handle.pending
    return StepResult(step_id=handle.step_id, runs=tuple(_read(first))), replace(handle, pending=tuple(rest))


def send(pending: PendingRuns) -> PendingRuns:
    """Begin to copy results to the host, as they are now; nothing waits, and what is launched later delays nothing.

    On a CPU the results are there already.
    """
    if pending.emitted.device.type != "cuda":
        return pending
    copy = _to_host
    top, constraints = pending.top, pending.constraints
    sent = replace(
        pending,
        emitted=copy(pending.emitted),
        num_accepted=copy(pending.num_accepted),
        num_draft_tokens=copy(pending.num_draft_tokens),
        is_finite=copy(pending.is_finite),
        logprobs=None if pending.logprobs is None else copy(pending.logprobs),
        top=None if top is None else TopLogprobs(copy(top.token_ids), copy(top.logprobs)),
        constraints=None if constraints is None else replace(constraints, is_empty=copy(constraints.is_empty)),
        event=torch.cuda.Event(),
    )
    assert sent.event is not None
    sent.event.record()
    return sent


def send_prompts(prompts: tuple[PendingPrompt, ...]) -> tuple[PendingPrompt, ...]:
    """As `send`, for what chunks say of their prompts."""
    return tuple(_send_prompt(pending) if pending.logprobs.is_cuda else pending for pending in prompts)


def _send_prompt(pending: PendingPrompt) -> PendingPrompt:
    top = None if pending.top is None else TopLogprobs(_to_host(pending.top.token_ids), _to_host(pending.top.logprobs))
    sent = replace(pending, logprobs=_to_host(pending.logprobs), top=top, event=torch.cuda.Event())
    assert sent.event is not None
    sent.event.record()
    return sent


def _to_host(values: Tensor) -> Tensor:
    host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
    return host.copy_(values, non_blocking=True)


def read_integers(values: Tensor) -> list[Any]:
    """Wait for an integer tensor and return it as a list, nested by axis."""
    return values.tolist()


def begin_copy(values: Tensor) -> HostCopy:
    """Begin to copy integers to the host, as they are now. Does not wait, and nothing launched later delays them.

    Args:
        values: may change afterwards.
    """
    if values.device.type != "cuda":
        return HostCopy(values.clone(), None)
    copy = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
    copy.copy_(values, non_blocking=True)
    event = torch.cuda.Event()
    event.record()
    return HostCopy(copy, event)


def end_copy(copy: HostCopy) -> list[Any]:
    """Wait for a copy, but not for what was launched after it, and return it as a list, nested by axis."""
    if copy.event is not None:
        copy.event.synchronize()
    return copy.values.tolist()


def words_for_device(shape: tuple[int, ...], device: torch.device) -> tuple[Tensor, NDArray[np.int32]]:
    """Return host words for the host to write, all bits set: as a tensor to be sent to a device, and as an array.

    Args:
        shape: of both, which share their memory.
        device: where they will go; sending does not wait.
    """
    words = torch.full(shape, -1, dtype=torch.int32, pin_memory=device.type == "cuda")
    return words, words.numpy()


def _read(pending: PendingRuns) -> list[TokenRun]:
    if pending.event is not None:
        pending.event.synchronize()
    emitted, accepted = pending.emitted.tolist(), pending.num_accepted.tolist()
    drafted, finite = pending.num_draft_tokens.tolist(), pending.is_finite.tolist()
    logprobs = pending.logprobs.tolist() if pending.logprobs is not None else None
    top = _alternatives(pending.top) if pending.top is not None else None
    errors = _read_errors(pending.constraints) if pending.constraints is not None else None
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
                error=None if errors is None else errors[index],
                error_code=NO_TOKEN_CODE if errors is not None and errors[index] is NO_TOKEN_LEFT else None,
            )
        )
    return runs


def _read_errors(news: ConstraintNews) -> list[str | None]:
    """Return, per row, why it ends because of its constraint, or None."""
    empty = news.is_empty.tolist()
    return [
        fault or (NO_TOKEN_LEFT if is_constrained and empty[index] else None)
        for index, (is_constrained, fault) in enumerate(zip(news.is_constrained, news.faults, strict=True))
    ]


def _read_prompt(pending: PendingPrompt) -> PromptRun:
    if pending.event is not None:
        pending.event.synchronize()
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
