"""The seam for stored formats: one logical tensor may be stored as several tensors (payload and scales).

Not here: the formats themselves, and the choice between them (`find`).
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from torch import Tensor

from slipstream.base.errors import EngineError
from slipstream.weights.reader import CheckpointReader
from slipstream.weights.rules import SourceIndex


class Format(Protocol):
    """One way of storing a logical tensor."""

    name: str

    def stored_names(self, name: str) -> tuple[str, ...]:
        """Return the names of all tensors that store the logical tensor `name`, the payload first; all are counted."""
        ...

    def unused_names(self, name: str) -> dict[str, str]:
        """Return names of tensors that may be stored beside them and are not needed, each with the reason."""
        ...

    def shape(self, reader: CheckpointReader, name: str) -> tuple[int, ...]:
        """Return the logical shape, whatever the packing."""
        ...

    def read(self, reader: CheckpointReader, name: str, source: SourceIndex) -> Tensor:
        """Return the values of a part of the logical tensor, in any floating dtype that holds them exactly."""
        ...


class PackedFormat(Format, Protocol):
    """A quantised format, whose stored parts kernels may take as they are."""

    group_size: int

    def parts(self, reader: CheckpointReader, name: str, source: SourceIndex) -> Parts:
        """Return the stored parts of a part of the logical tensor; its columns are whole groups.

        Raises:
            CheckpointError: a scale that stands for no number.
            EngineError: columns that cut a group.
        """
        ...


class Parts(NamedTuple):
    """What is stored of a logical tensor, or of a part of it.

    Args:
        values: elements, packed or not.
        scales: one per group of columns.
        global_scale: [] float32, multiplies; None where the format has none.
    """

    values: Tensor  # [out, in / elements per byte] float8_e4m3fn or uint8
    scales: Tensor  # [out, in / group_size] uint8 codes or float8_e4m3fn
    global_scale: Tensor | None  # [] float32


class GroupedSource(NamedTuple):
    """A part of a logical tensor, widened to whole groups of columns.

    Args:
        rows: index into all axes but the last.
        first, last: whole groups that hold the columns.
        trim: the wanted columns within those groups.
    """

    rows: SourceIndex
    first: int
    last: int
    trim: slice

    @property
    def groups(self) -> SourceIndex:
        """Index into the scales."""
        return (*self.rows, slice(self.first, self.last))

    def columns(self, per_group: int) -> SourceIndex:
        """Index into values that take `per_group` places for a group of columns."""
        return (*self.rows, slice(self.first * per_group, self.last * per_group))


def group_source(shape: tuple[int, ...], source: SourceIndex, group_size: int) -> GroupedSource:
    """Return which groups hold a part of a tensor.

    Args:
        shape: logical shape.
        source: index into it; axes that are not named are taken whole.
        group_size: columns that share a scale.

    Raises:
        EngineError: a step other than one, a fault of a rule.
    """
    full = (*source, *(slice(None) for _ in shape[len(source) :]))
    ranges = [range(*index.indices(size)) for index, size in zip(full, shape, strict=True)]
    if any(axis.step != 1 for axis in ranges):
        raise EngineError(f"a weight rule takes {source} of a quantised tensor; its parts are contiguous")
    start, stop = ranges[-1].start, max(ranges[-1].stop, ranges[-1].start)
    first, last = start // group_size, -(-stop // group_size)
    begin = first * group_size
    rows = tuple(slice(axis.start, max(axis.stop, axis.start)) for axis in ranges[:-1])
    return GroupedSource(rows, first, last, slice(start - begin, stop - begin))


def check_whole_groups(groups: GroupedSource, group_size: int, name: str) -> None:
    """Raise unless a part's columns are whole groups.

    Raises:
        EngineError: they are not.
    """
    if groups.trim != slice(0, (groups.last - groups.first) * group_size):
        raise EngineError(f"the stored parts of {name} were asked for in columns that cut a group of {group_size}")
