"""Identifiers that cross rooms, and the three reserved values."""

from __future__ import annotations

from typing import NewType

RowId = NewType("RowId", int)
PageId = NewType("PageId", int)

NULL_PAGE = PageId(0)
"""Page 0 is never owned; unused page-table entries point at it."""

NO_ROW = RowId(-1)
"""A padding entry of a batch."""

SKIP_SLOT = -1
"""A slot that must not be written; every kernel skips it explicitly."""

NO_TOKEN = -1
"""A draft position without a proposal: never accepted, embedded as token 0."""
