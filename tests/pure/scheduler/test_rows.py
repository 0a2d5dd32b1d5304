from __future__ import annotations

import pytest

from slipstream.base.errors import EngineError
from slipstream.scheduler.rows import RowPool


def test_the_lowest_free_row_is_taken():
    rows = RowPool(3)
    assert [rows.take() for _ in range(3)] == [0, 1, 2]
    rows.release(2, -1)
    rows.release(0, -1)
    assert rows.num_free == 2
    assert rows.take() == 0


def test_a_row_in_flight_is_free_after_its_step_has_retired():
    rows = RowPool(2)
    row = rows.take()
    rows.release(row, retire_step=4)
    rows.on_retired(3)
    assert rows.num_free == 1
    rows.on_retired(4)
    assert rows.num_free == 2
    rows.release(rows.take(), retire_step=4)
    assert rows.num_free == 2


def test_a_row_is_released_once():
    rows = RowPool(2)
    row = rows.take()
    rows.release(row, 0)
    with pytest.raises(EngineError, match="no request owns it"):
        rows.release(row, 0)
