"""The seam for stored formats: one logical tensor may be stored as several tensors (payload and scales).

Not here: the formats themselves, and the choice between them (`find`).
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from slipstream.weights.reader import CheckpointReader
from slipstream.weights.rules import SourceIndex


class Format(Protocol):
    """One way of storing a logical tensor."""

    name: str

    def stored_names(self, name: str) -> tuple[str, ...]:
        """Return the names of all tensors that store the logical tensor `name`; coverage counts each of them."""
        ...

    def shape(self, reader: CheckpointReader, name: str) -> tuple[int, ...]:
        """Return the logical shape, whatever the packing."""
        ...

    def read(self, reader: CheckpointReader, name: str, source: SourceIndex) -> Tensor:
        """Return the values of a part of the logical tensor, in any floating dtype that holds them exactly."""
        ...
