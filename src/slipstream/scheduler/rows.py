"""Rows of device state: which are free, and which wait for a step to retire."""

from __future__ import annotations

import heapq

from slipstream.base.errors import EngineError
from slipstream.wire.ids import RowId


class RowPool:
    """Hands out the lowest free row. A row that a step in flight still works on is not free yet.

    Args:
        max_rows: rows 0 .. max_rows - 1 exist.
    """

    def __init__(self, max_rows: int) -> None:
        self._free = [RowId(row) for row in range(max_rows)]
        self._taken: set[RowId] = set()
        self._deferred: dict[int, list[RowId]] = {}
        self._retired_step = -1

    @property
    def num_free(self) -> int:
        """Rows that can be taken now."""
        return len(self._free)

    def take(self) -> RowId:
        """Take a row; the caller has checked num_free."""
        row = heapq.heappop(self._free)
        self._taken.add(row)
        return row

    def release(self, row: RowId, retire_step: int) -> None:
        """Give a row back; it is free once retire_step has retired.

        Raises:
            EngineError: nobody has taken the row.
        """
        if row not in self._taken:
            raise EngineError(f"row {row} was released, but no request owns it")
        self._taken.remove(row)
        if retire_step <= self._retired_step:
            heapq.heappush(self._free, row)
        else:
            self._deferred.setdefault(retire_step, []).append(row)

    def on_retired(self, step_id: int) -> None:
        """Note that a step, and all before it, have ended on the device."""
        self._retired_step = step_id
        for step in [step for step in self._deferred if step <= step_id]:
            for row in self._deferred.pop(step):
                heapq.heappush(self._free, row)
