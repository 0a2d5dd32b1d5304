"""Plain tensors: bfloat16, float16 or float32, one stored tensor per logical tensor."""

from __future__ import annotations

from torch import Tensor

from slipstream.weights.reader import CheckpointReader
from slipstream.weights.rules import SourceIndex

PLAIN_DTYPES = frozenset({"BF16", "F16", "F32"})


class Plain:
    """The values as they are."""

    name = "plain"

    def stored_names(self, name: str) -> tuple[str, ...]:
        """Return the tensor itself."""
        return (name,)

    def unused_names(self, name: str) -> dict[str, str]:
        """Return nothing."""
        del name
        return {}

    def shape(self, reader: CheckpointReader, name: str) -> tuple[int, ...]:
        """Return the stored shape."""
        return reader.shape(name)

    def read(self, reader: CheckpointReader, name: str, source: SourceIndex) -> Tensor:
        """Return the stored values."""
        return reader.read(name, source)
