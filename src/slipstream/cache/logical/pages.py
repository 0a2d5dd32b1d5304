"""Page ids of all cache groups and the bundles made of them.

A bundle is one page of every group. It is the unit that is allocated, matched, published and evicted, so no group can
be ahead of another. Not here: who holds a bundle (`manager`) and what is stored in it (`prefix`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from slipstream.base.errors import ConfigError, EngineError
from slipstream.wire.ids import NULL_PAGE, PageId


@dataclass(frozen=True)
class GroupSpec:
    """One cache group: layers that share page ids.

    Args:
        name: unique, e.g. "target" or "index".
        num_pages: pages in the group's pools, the null page included; ids run from 0 to num_pages - 1.
    """

    name: str
    num_pages: int


@dataclass(eq=False, slots=True)
class Bundle:
    """One page of every group, in the order of the groups.

    Args:
        pages: the ids.
        num_holders: rows, open hits and deferred releases that hold it; the prefix index is not counted.
    """

    pages: tuple[PageId, ...]
    num_holders: int = field(default=0)


class PageAllocator:
    """The free pages of one group. Page 0 is the null page: it is never handed out.

    Args:
        spec: the group.
        is_descending: hand out high ids first. Neighbouring groups start from opposite ends, so that a table that
            is read for the wrong group is wrong at once instead of right by chance.
    """

    def __init__(self, spec: GroupSpec, *, is_descending: bool = False) -> None:
        if spec.num_pages < 2:
            raise ConfigError(
                f"cache group {spec.name!r} has num_pages={spec.num_pages}: give at least 2, "
                "the null page and one that can be owned"
            )
        self.spec = spec
        ids = range(NULL_PAGE + 1, spec.num_pages)
        self._free = [PageId(page) for page in (ids if is_descending else reversed(ids))]
        self._is_free = bytearray([0] + [1] * (spec.num_pages - 1))

    @property
    def num_free(self) -> int:
        """Pages that can be allocated now."""
        return len(self._free)

    def allocate(self) -> PageId:
        """Take one page; the caller has checked that there is one."""
        page = self._free.pop()
        self._is_free[page] = 0
        return page

    def free(self, page: PageId) -> None:
        """Give one page back.

        Raises:
            EngineError: the page is the null page, unknown, or free already.
        """
        if not NULL_PAGE < page < self.spec.num_pages or self._is_free[page]:
            raise EngineError(
                f"page {page} of cache group {self.spec.name!r} was freed, but it is not owned: "
                f"owned pages lie in 1..{self.spec.num_pages - 1} and are freed once"
            )
        self._is_free[page] = 1
        self._free.append(page)

    def check(self, owned: Iterable[PageId]) -> None:
        """Assert that free and owned pages together are every page but the null page, each once."""
        everything = sorted([*self._free, *owned])
        assert everything == list(range(1, self.spec.num_pages)), (
            f"cache group {self.spec.name!r}: free and owned pages are not 1..{self.spec.num_pages - 1}, each once"
        )


class BundleAllocator:
    """Allocates one page of every group at a time, or none."""

    def __init__(self, groups: Sequence[GroupSpec]) -> None:
        names = [group.name for group in groups]
        if not names or len(set(names)) != len(names):
            raise ConfigError(f"cache groups {names!r}: give at least one, each with a name of its own")
        self.groups = tuple(groups)
        self._allocators = tuple(
            PageAllocator(group, is_descending=bool(number % 2)) for number, group in enumerate(groups)
        )

    @property
    def num_bundles(self) -> int:
        """Bundles that can exist at once: the smallest group decides."""
        return min(group.num_pages for group in self.groups) - 1

    @property
    def num_free(self) -> int:
        """Bundles that can be allocated now."""
        return min(allocator.num_free for allocator in self._allocators)

    def allocate(self) -> Bundle:
        """Return a bundle without holders.

        Raises:
            EngineError: no bundle is free; callers check num_free first.
        """
        if not self.num_free:
            raise EngineError("a page bundle was asked for while none is free")
        return Bundle(tuple(allocator.allocate() for allocator in self._allocators))

    def free(self, bundle: Bundle) -> None:
        """Give every page of a bundle back; it must have no holder.

        Raises:
            EngineError: something still holds the bundle, or a page of it is free already.
        """
        if bundle.num_holders:
            raise EngineError(f"bundle {bundle.pages} was freed while {bundle.num_holders} holders use it")
        for allocator, page in zip(self._allocators, bundle.pages, strict=True):
            allocator.free(page)

    def check(self, bundles: Iterable[Bundle]) -> None:
        """Assert that `bundles` are exactly the bundles that are not free."""
        owned = [bundle.pages for bundle in bundles]
        for number, allocator in enumerate(self._allocators):
            allocator.check(pages[number] for pages in owned)
