from __future__ import annotations

from slipstream.cache.logical.pages import Bundle
from slipstream.cache.logical.table import RowTable
from slipstream.wire.ids import PageId
from slipstream.wire.step import PageEdit

GROUPS = ("target", "index")


def bundle(number: int) -> Bundle:
    return Bundle((PageId(number), PageId(number + 100)))


def shown(table: RowTable, row: int = 3) -> dict[str, tuple[int, tuple[int, ...]]]:
    edits = table.take_edits(row, GROUPS)
    assert all(edit.row == row for edit in edits)
    return {edit.group: (edit.first, edit.pages) for edit in edits}


def test_new_entries_are_one_edit_per_group():
    table = RowTable()
    assert not table.is_dirty
    table.append([bundle(1), bundle(2)])
    assert table.is_dirty
    assert table.take_edits(3, GROUPS) == [
        PageEdit(group="target", row=3, first=0, pages=(1, 2)),
        PageEdit(group="index", row=3, first=0, pages=(101, 102)),
    ]
    assert not table.is_dirty
    assert table.take_edits(3, GROUPS) == []
    table.append([bundle(3)])
    assert shown(table) == {"target": (2, (3,)), "index": (2, (103,))}


def test_entries_that_went_away_become_the_null_page():
    table = RowTable()
    table.append([bundle(1), bundle(2), bundle(3)])
    shown(table)
    assert [item.pages[0] for item in table.cut(1)] == [2, 3]
    assert shown(table) == {"target": (1, (0, 0)), "index": (1, (0, 0))}
    assert not table.is_dirty


def test_only_what_changed_is_sent():
    table = RowTable()
    kept = [bundle(number) for number in range(1, 5)]
    table.append(kept)
    shown(table)
    table.cut(1)
    table.append([kept[1], bundle(9)])
    assert shown(table) == {"target": (2, (9, 0)), "index": (2, (109, 0))}
    table.cut(2)
    table.append([bundle(9)])
    assert table.is_dirty
    assert shown(table) == {}
    assert not table.is_dirty


def test_entries_cut_before_the_device_saw_them_are_not_sent():
    table = RowTable()
    table.append([bundle(1), bundle(2)])
    table.cut(1)
    assert shown(table) == {"target": (0, (1,)), "index": (0, (101,))}
    table.append([bundle(3)])
    table.cut(1)
    assert shown(table) == {}
