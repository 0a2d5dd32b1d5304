"""How tensors of a checkpoint become parameters: one rule per piece, as data.

A rule is an assignment, `parameters[parameter][target] = checkpoint[tensor][source]`. Everything that loaders usually
have words for is a choice of the two indices: fusing (targets below each other), stacking experts (an integer in the
target), sharding by rows or columns (the source), replicating KV heads (the same source on two ranks).

Not here: which names a family uses; that lives with its network in `models`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

SourceIndex = tuple[slice, ...]
TargetIndex = tuple[slice | int, ...]


@dataclass(frozen=True, slots=True)
class WeightRule:
    """One piece of one parameter.

    Args:
        parameter: dotted name in the module that is filled.
        tensor: name in the checkpoint.
        shape: full shape of that tensor, before any slicing.
        source: index into the checkpoint tensor; () takes all of it.
        target: index into the parameter; () fills all of it.
        optional: the tensor may be absent; the parameter then keeps what it holds.
    """

    parameter: str
    tensor: str
    shape: tuple[int, ...]
    source: SourceIndex = ()
    target: TargetIndex = ()
    optional: bool = False

    @property
    def num_elements(self) -> int:
        """Elements that the rule copies."""
        count = 1
        for axis, size in enumerate(self.shape):
            index = self.source[axis] if axis < len(self.source) else slice(None)
            count *= len(range(*index.indices(size)))
        return count


@dataclass(frozen=True, slots=True)
class IgnoreRule:
    """Tensors that are known and not used.

    Args:
        pattern: regular expression that matches the whole name.
        reason: why they are left out; shown by the load report.
    """

    pattern: str
    reason: str

    def matches(self, name: str) -> bool:
        """Return whether the tensor is one of these."""
        return re.fullmatch(self.pattern, name) is not None
