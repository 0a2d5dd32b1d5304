"""What rank 0 and the worker processes of the other ranks say to each other. msgspec msgpack, no pickle.

A worker says Hello, then Loaded, and after that nothing (or, in debug mode, one StepAgreement per step) until it
fails. Tensors never pass here: ranks exchange them in collectives.
"""

from __future__ import annotations

import msgspec

from slipstream.wire.step import StepPlan


class RankIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """What must be equal on all ranks, or they could take different decisions.

    Args:
        config: digest of the configuration.
        switches: names and values of the environment's switches.
        version: of this package.
        torch: version of torch.
        arithmetic: the instruction set that CPU kernels use.
    """

    config: str
    switches: str
    version: str
    torch: str
    arithmetic: str


class RowAgreement(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank decided for one row in one step, and where that left the row.

    Args:
        row: the row.
        token_ids: emitted tokens; empty for a prompt chunk that is not the last.
        num_accepted: accepted drafts.
        num_computed_tokens: after the step.
        last_token: after the step.
        draft_tokens: for the next step.
    """

    row: int
    token_ids: tuple[int, ...]
    num_accepted: int
    num_computed_tokens: int
    last_token: int
    draft_tokens: tuple[int, ...]


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """A worker is there; nothing is loaded."""

    rank: int
    identity: RankIdentity


class Loaded(msgspec.Struct, frozen=True, tag="loaded"):
    """A worker holds its weights and pools."""

    rank: int


class StepAgreement(msgspec.Struct, frozen=True, tag="agreement"):
    """What one rank decided in one step; rows in the order of the plan: decode rows, then chunks."""

    rank: int
    step_id: int
    rows: tuple[RowAgreement, ...]


class RankFailed(msgspec.Struct, frozen=True, tag="rank_failed"):
    """A worker's last words. `kind` is the error's class name."""

    rank: int
    kind: str
    reason: str


ToLeader = Hello | Loaded | StepAgreement | RankFailed


class Meet(msgspec.Struct, frozen=True, tag="meet"):
    """All ranks agree on what they are: meet at this place, then load."""

    init_method: str


class WarmUp(msgspec.Struct, frozen=True, tag="warm_up"):
    """Warm up, together with the other ranks."""


class RunStep(msgspec.Struct, frozen=True, tag="run_step"):
    """Run a step, together with the other ranks."""

    plan: StepPlan


class Leave(msgspec.Struct, frozen=True, tag="leave"):
    """End."""


ToWorker = Meet | WarmUp | RunStep | Leave
