"""Device page tables: groups apart, rows apart, cleared rows all null."""

import torch

from slipstream.cache.physical.tables import PageTables


def test_rows_and_groups_do_not_touch_each_other() -> None:
    tables = PageTables(("target", "index"), 2, 4, torch.device("cpu"))
    tables.write("target", 1, 1, (7, 8))
    assert tables.table("target").tolist() == [[0] * 4, [0, 7, 8, 0], [0] * 4]
    assert tables.table("index").sum() == 0
    tables.clear(1)
    assert tables.table("target").sum() == 0
