"""What a run may ask of changed copies of checkpoints, without torch. Not here: making them (variants)."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import msgspec

from slipstream.evaluation.findings import Selection


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A feature that a changed copy switches off.

    Args:
        feature: its name in results.
        means: how the copy expresses it.
        selection: the selection of blocks that the copy has, if that is what it changes.
        needs_copy: weights are rewritten, so that the copy is as large as the checkpoint.
    """

    feature: str
    means: str
    selection: Selection | None = None
    needs_copy: bool = False


class Workshop(Protocol):
    """Makes changed copies, one at a time, and removes them."""

    @property
    def changes(self) -> tuple[Change, ...]:
        """All changes, in the order of a report."""
        ...

    @property
    def controls(self) -> tuple[str, ...]:
        """Names of the control drafters; empty when the drafter is not a head with weights."""
        ...

    @property
    def num_bytes(self) -> int:
        """Bytes of the checkpoint's weights."""
        ...

    def variant(self, feature: str) -> AbstractContextManager[Path | None]:
        """Return the folder of a changed checkpoint; None when the checkpoint does not have the feature."""
        ...

    def control(self, name: str) -> AbstractContextManager[Path]:
        """Return the folder of a control drafter."""
        ...
