"""What a rank decided in a step, as integers that ranks can compare: a debug aid, off unless it is asked for.

Not here: sending and comparing; see `engine.ranks`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from slipstream.runner import handoff
from slipstream.runner.handoff import StepHandle
from slipstream.runner.rows import RowState
from slipstream.wire.ranks import RowAgreement
from slipstream.wire.step import StepPlan


@dataclass(frozen=True, slots=True)
class StepProbe:
    """Where a step left its rows, copied before the next step changes them; not read yet."""

    handle: StepHandle
    rows: tuple[int, ...]  # decode rows, then rows of chunks
    num_computed_tokens: Tensor  # [num_rows] int64
    last_token: Tensor  # [num_rows] int64
    draft_tokens: Tensor  # [num_rows, draft_len] int64


def probe_step(rows: RowState, plan: StepPlan, handle: StepHandle) -> StepProbe:
    """Copy what a submitted step left in its rows. Nothing waits.

    Args:
        rows: of the runner that ran the step.
        plan: the step.
        handle: what `submit` returned for it; no later step has been submitted.
    """
    touched = (*plan.decode_rows, *(chunk.row for chunk in plan.chunks))
    index = torch.tensor(touched, dtype=torch.int64, device=rows.last_token.device)
    return StepProbe(
        handle=handle,
        rows=touched,
        num_computed_tokens=rows.num_computed_tokens[index],
        last_token=rows.last_token[index],
        draft_tokens=rows.draft_tokens[index],
    )


def read_probe(probe: StepProbe) -> tuple[RowAgreement, ...]:
    """Wait for the step and return what it decided, row by row."""
    runs = {run.row: run for run in handoff.collect(probe.handle).runs}
    computed, last, drafts = (
        handoff.read_integers(values) for values in (probe.num_computed_tokens, probe.last_token, probe.draft_tokens)
    )
    return tuple(
        RowAgreement(
            row=row,
            token_ids=runs[row].token_ids if row in runs else (),
            num_accepted=runs[row].num_accepted if row in runs else 0,
            num_computed_tokens=computed[place],
            last_token=last[place],
            draft_tokens=tuple(drafts[place]),
        )
        for place, row in enumerate(probe.rows)
    )
