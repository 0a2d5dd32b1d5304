"""Named cases of operations: what tests, benchmarks and documents run an operation on.

Each operation's `cases.py` holds `CASES` and `make_inputs(case)`, which returns the keyword arguments of its contract.
Not here: expected results; those come from an oracle that shares no code with the operation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

Size = int | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far a result may be from a float64 oracle, and why that far."""

    atol: float
    rtol: float
    reason: str

    def accepts(self, actual: Tensor, expected: Tensor) -> bool:
        """Return whether shapes agree and every element is within atol + rtol * |expected|; NaN never is."""
        if actual.shape != expected.shape:
            return False
        return torch.allclose(actual.double(), expected.double(), atol=self.atol, rtol=self.rtol)


EXACT = Tolerance(0.0, 0.0, "integers: nothing is rounded")


@dataclass(frozen=True, slots=True)
class Case:
    """One set of shapes and values.

    Args:
        name: unique within the operation.
        guards: the fault that this case exists for.
        seed: of the generator that fills the inputs.
        dtype: of the activations.
        tolerance: against the oracle.
        sizes: axis or parameter name -> value; what an operation reads of it is its own matter.
    """

    name: str
    guards: str
    seed: int
    dtype: torch.dtype
    tolerance: Tolerance
    sizes: Mapping[str, Size] = field(default_factory=dict)

    def size(self, name: str, default: int | None = None) -> int:
        """Return an integer size; without a default, KeyError when the case lacks it."""
        value = self.sizes[name] if default is None else self.sizes.get(name, default)
        assert isinstance(value, int), f"{name} of case {self.name} is not one number"
        return value

    def sequence(self, name: str) -> tuple[int, ...]:
        """Return a size that is one number per request; KeyError when the case lacks it."""
        value = self.sizes[name]
        assert isinstance(value, tuple), f"{name} of case {self.name} is not a tuple"
        return value

    def generator(self) -> torch.Generator:
        """Return a fresh CPU generator at the case's seed."""
        return torch.Generator().manual_seed(self.seed)


def case_named(cases: tuple[Case, ...], name: str) -> Case:
    """Return the case of that name; KeyError when there is none."""
    for case in cases:
        if case.name == name:
            return case
    raise KeyError(name)
