"""The page tables of one row: which bundles it has, and what the device was last told.

Not here: allocation and counting of holders (`manager`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from slipstream.cache.logical.pages import Bundle
from slipstream.cache.logical.prefix import PrefixNode
from slipstream.wire.ids import NULL_PAGE, PageId
from slipstream.wire.step import PageEdit


def _new_bundles() -> list[Bundle]:
    return []


def _new_shown() -> list[tuple[PageId, ...]]:
    return []


@dataclass(eq=False, slots=True)
class RowTable:
    """One row's page tables in all groups, and how far its pages are published.

    Args:
        bundles: entry i holds tokens [i * page_size, (i + 1) * page_size).
        shown: the entries as the device has them after the last plan; entries past them are the null page.
        dirty_from: entries before this one are equal in `bundles` and `shown`.
        is_open: a request owns the row.
        num_hit: leading entries that were found by prefix; other rows wrote them.
        num_published: leading entries whose content is in the prefix index.
        tail: the index node of entry num_published - 1, or None.
        is_publishing: False once publication ended for this row: a hash collision, or pages not to be trusted.
    """

    bundles: list[Bundle] = field(default_factory=_new_bundles)
    shown: list[tuple[PageId, ...]] = field(default_factory=_new_shown)
    dirty_from: int = 0
    is_open: bool = False
    num_hit: int = 0
    num_published: int = 0
    tail: PrefixNode | None = None
    is_publishing: bool = True

    def append(self, bundles: Sequence[Bundle]) -> None:
        """Add entries at the end."""
        self.dirty_from = min(self.dirty_from, len(self.bundles))
        self.bundles.extend(bundles)

    def cut(self, num_kept: int) -> list[Bundle]:
        """Remove and return the entries from num_kept on."""
        surplus = self.bundles[num_kept:]
        del self.bundles[num_kept:]
        self.dirty_from = min(self.dirty_from, num_kept)
        return surplus

    @property
    def is_dirty(self) -> bool:
        """Whether the device's table may differ."""
        return self.dirty_from < max(len(self.bundles), len(self.shown))

    def take_edits(self, row: int, groups: Sequence[str]) -> list[PageEdit]:
        """Return the edits that make the device's tables equal to `bundles`, and note them as shown.

        One edit per group covers the changed range; entries that went away become the null page.
        """
        empty = (NULL_PAGE,) * len(groups)
        old = self.shown[self.dirty_from :]
        new = [bundle.pages for bundle in self.bundles[self.dirty_from :]]
        length = max(len(old), len(new))
        target = new + [empty] * (length - len(new))
        changed = [
            offset for offset, pages in enumerate(target) if pages != (old[offset] if offset < len(old) else empty)
        ]
        first = self.dirty_from
        self.shown[first:] = new
        self.dirty_from = len(new) + first
        if not changed:
            return []
        start, end = changed[0], changed[-1] + 1
        return [
            PageEdit(
                group=group,
                row=row,
                first=first + start,
                pages=tuple(pages[number] for pages in target[start:end]),
            )
            for number, group in enumerate(groups)
        ]
