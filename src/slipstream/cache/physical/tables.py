"""Device page tables: per cache group one row of page ids for every request row.

Not here: deciding which pages a row gets (`cache.logical`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from slipstream.wire.ids import NULL_PAGE


class PageTables:
    """Page tables on the device.

    Args:
        groups: cache groups.
        max_rows: request rows; one scratch row for padding is added and stays all null.
        max_pages: entries per row.
        device: where.
    """

    def __init__(self, groups: tuple[str, ...], max_rows: int, max_pages: int, device: torch.device) -> None:
        self.max_pages = max_pages
        self._tables: dict[str, Tensor] = {
            group: torch.full((max_rows + 1, max_pages), NULL_PAGE, dtype=torch.int32, device=device)
            for group in groups
        }

    @property
    def groups(self) -> tuple[str, ...]:
        """Cache groups with a table."""
        return tuple(self._tables)

    def table(self, group: str) -> Tensor:
        """Return [max_rows + 1, max_pages] int32."""
        return self._tables[group]

    def clear(self, row: int) -> None:
        """Point every entry of a row at the null page."""
        for table in self._tables.values():
            table[row].fill_(NULL_PAGE)

    def write(self, group: str, row: int, first: int, pages: tuple[int, ...]) -> None:
        """Write entries [first, first + len(pages)) of a row."""
        table = self._tables[group]
        table[row, first : first + len(pages)] = torch.tensor(pages, dtype=torch.int32, device=table.device)
