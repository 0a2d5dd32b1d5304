"""The one door to logical pages: match, ensure, publish, trim, release, retire.

Rows hold bundles, the prefix index remembers full ones, the rest is free. A bundle has one writer, the row that
allocated it; rows that found it by prefix only read it. Everything here is planned ahead of the device: what a row
gives up stays held until the last step that may still touch it has retired.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from slipstream.base.errors import ConfigError, EngineError
from slipstream.cache.logical.pages import Bundle, BundleAllocator, GroupSpec
from slipstream.cache.logical.prefix import PageDigest, PrefixIndex, PrefixNode, chain_digest, pack_tokens
from slipstream.cache.logical.table import RowTable
from slipstream.wire.step import PageEdit

NO_STEP = -1
"""Older than every step: a release with it takes effect at once."""


@dataclass(frozen=True, eq=False)
class PrefixHit:
    """Pages found by content; `match` holds them until they are attached to a row or unpinned.

    Args:
        num_tokens: a multiple of the page size, below the length that was asked for.
        bundles: the pages, first to last.
        tail: index node of the last one, or None for no hit.
    """

    num_tokens: int
    bundles: tuple[Bundle, ...]
    tail: PrefixNode | None


@dataclass(frozen=True)
class CacheCounts:
    """Bundles by what can be done with them; num_free + num_cached + num_used = num_pages.

    Args:
        num_pages: all that can be owned, the null page not counted.
        num_free: in nobody's hands.
        num_cached: in the prefix index and held by nobody: reusable and evictable.
        num_used: held by rows, open hits or deferred releases.
    """

    num_pages: int
    num_free: int
    num_cached: int
    num_used: int


class CacheManager:
    """Pages of all rows.

    Args:
        groups: cache groups; every operation acts on all of them or on none.
        page_size: tokens per page, the same in every group.
        salt: what besides tokens decides a page's bytes: model, cache format.
        enable_prefix: False never matches and never publishes.
        digest: chain hash of the prefix index.
    """

    def __init__(
        self,
        groups: Sequence[GroupSpec],
        page_size: int,
        salt: bytes = b"",
        enable_prefix: bool = True,
        *,
        digest: PageDigest = chain_digest,
    ) -> None:
        if page_size < 1:
            raise ConfigError(f"page_size={page_size}: give at least 1 token per page")
        self.page_size = page_size
        self._pages = BundleAllocator(groups)
        self._group_names = tuple(group.name for group in groups)
        self._prefix = PrefixIndex(salt, digest=digest)
        self._is_prefix_on = enable_prefix
        self._tables: dict[int, RowTable] = {}
        self._hits: set[PrefixHit] = set()
        self._deferred: dict[int, list[Bundle]] = {}  # by the step that must retire first
        self._retired_step = NO_STEP

    # -- counts

    @property
    def num_pages(self) -> int:
        """Bundles that can be owned."""
        return self._pages.num_bundles

    @property
    def num_available(self) -> int:
        """Bundles that `ensure` can still hand out: free ones, and evictable ones."""
        return self._pages.num_free + self._prefix.num_unpinned

    @property
    def num_deferred(self) -> int:
        """Bundles given up by rows but not yet by the steps in flight; a shared one counts too."""
        return sum(map(len, self._deferred.values()))

    @property
    def counts(self) -> CacheCounts:
        """A snapshot of where the bundles are."""
        free, cached = self._pages.num_free, self._prefix.num_unpinned
        return CacheCounts(self.num_pages, free, cached, self.num_pages - free - cached)

    def pages_for(self, num_tokens: int) -> int:
        """Return the pages that hold this many tokens."""
        return -(-num_tokens // self.page_size)

    def num_missing(self, row: int, num_tokens: int) -> int:
        """Return how many bundles `ensure` would have to allocate for the row."""
        return max(self.pages_for(num_tokens) - len(self._open(row).bundles), 0)

    # -- a row's life

    def match(self, token_ids: Sequence[int], known: PrefixHit | None = None) -> PrefixHit:
        """Find the longest stored prefix in whole pages and hold it.

        The caller passes the hit on to `attach` or `unpin`.

        Args:
            token_ids: the known tokens of a request.
            known: see `find`.
        """
        hit = self.find(token_ids, known)
        # INVARIANT: a node that is alive has only live ones before it.
        assert hit.tail is None or hit.tail.is_alive
        for bundle in hit.bundles:
            self._hold(bundle)
        self._hits.add(hit)
        return hit

    def find(self, token_ids: Sequence[int], known: PrefixHit | None = None) -> PrefixHit:
        """Find the longest stored prefix in whole pages, and hold nothing: the next change of the index may end it.

        At least one token is left to compute, so a hit covers at most (len - 1) // page_size pages.

        Args:
            token_ids: the known tokens of a request.
            known: an earlier result for the same tokens, or for a beginning of them. While its pages are in the index,
                only the pages after it are hashed.
        """
        most = (len(token_ids) - 1) // self.page_size if self._is_prefix_on else 0
        tail = None if known is None else known.tail
        if known is not None and (len(known.bundles) > most or (tail is not None and not tail.is_alive)):
            known, tail = None, None
        bundles = list(known.bundles) if known is not None else []
        for number in range(len(bundles), most):
            node = self._prefix.find(tail, self._pack(token_ids, number))
            if node is None:
                break
            bundles.append(node.bundle)
            tail = node
        if known is not None and len(bundles) == len(known.bundles):
            return known
        return PrefixHit(len(bundles) * self.page_size, tuple(bundles), tail)

    def unpin(self, hit: PrefixHit) -> None:
        """Let go of a hit that will not be used."""
        self._hits.remove(hit)
        self._drop_all(hit.bundles)

    def attach(self, row: int, hit: PrefixHit) -> None:
        """Begin a row's life with the pages of a hit; the device clears the row's tables in the same step.

        Raises:
            EngineError: the row is in use.
        """
        table = self._tables.setdefault(row, RowTable())
        if table.is_open:
            raise EngineError(f"row {row} got a request while another one owns it")
        self._hits.remove(hit)
        self._tables[row] = RowTable(
            is_open=True, num_hit=len(hit.bundles), num_published=len(hit.bundles), tail=hit.tail
        )
        self._tables[row].append(hit.bundles)

    def ensure(self, row: int, num_tokens: int) -> bool:
        """Give the row pages for its first num_tokens tokens, evicting if needed.

        Returns:
            False when there are not enough; then nothing has changed.
        """
        missing = self.num_missing(row, num_tokens)
        if missing > self.num_available:
            return False
        while self._pages.num_free < missing:
            for bundle in self._prefix.evict():
                self._pages.free(bundle)
        fresh = [self._pages.allocate() for _ in range(missing)]
        for bundle in fresh:
            bundle.num_holders = 1
        self._open(row).append(fresh)
        return True

    def publish(self, row: int, token_ids: Sequence[int], num_computed_tokens: int) -> None:
        """Make the row's full pages findable.

        A page whose content is in the index already stays the row's own: two pages may hold the same content, one
        of them found by others.

        Args:
            row: an open row.
            token_ids: the row's known tokens from the start; at least num_computed_tokens of them.
            num_computed_tokens: tokens that steps which have RETIRED have written in every group.
        """
        table = self._open(row)
        num_full = num_computed_tokens // self.page_size
        if not self._is_prefix_on or not table.is_publishing or table.num_published >= num_full:
            return
        if table.tail is not None and not table.tail.is_alive:
            # The path was evicted under this row, which holds duplicates of it: publish again from the start.
            table.num_published, table.tail = 0, None
        # INVARIANT: what was computed lies in pages of the row.
        assert num_full <= len(table.bundles)
        for number in range(table.num_published, num_full):
            tokens = self._pack(token_ids, number)
            if number < table.num_hit:  # another row wrote it, and only its writer may publish a page
                node = self._prefix.find(table.tail, tokens)
            else:
                node = self._prefix.insert(table.tail, tokens, table.bundles[number])
            if node is None:
                table.is_publishing = False
                return
            table.num_published, table.tail = number + 1, node

    def forget(self, row: int) -> None:
        """Take all pages of the row out of the index, found ones included: their content is not to be trusted.

        What made a result not finite may have been written by an earlier request. Pages that follow them in the index
        go as well; whoever holds one keeps it, but no row that reads one of them publishes any more.
        """
        suspects = set(self._open(row).bundles)
        for table in self._tables.values():
            if not suspects.isdisjoint(table.bundles):
                table.is_publishing = False
        for bundle in suspects:
            for freed in self._prefix.remove(bundle):
                self._pages.free(freed)

    def trim(self, row: int, num_tokens: int, retire_step: int = NO_STEP) -> int:
        """Give up the row's pages past its first num_tokens tokens; return how many.

        Args:
            row: an open row.
            num_tokens: tokens whose pages are kept.
            retire_step: the last step planned with the row; the pages become free when it has retired.

        Raises:
            EngineError: a published page would go; others may be reading it.
        """
        table, num_kept = self._open(row), self.pages_for(num_tokens)
        if num_kept < table.num_published:
            raise EngineError(
                f"row {row} was trimmed to {num_kept} pages, but {table.num_published} of them are published"
            )
        surplus = table.cut(num_kept)
        self._defer(surplus, retire_step)
        return len(surplus)

    def release(self, row: int, retire_step: int = NO_STEP) -> None:
        """End a row's life; its pages become free or stay findable when retire_step has retired."""
        table = self._open(row)
        self._defer(table.cut(0), retire_step)
        table.is_open, table.tail = False, None

    def on_retired(self, step_id: int) -> None:
        """Note that a step, and all before it, have ended on the device."""
        self._retired_step = step_id
        for step in sorted(step for step in self._deferred if step <= step_id):
            self._drop_all(self._deferred.pop(step))

    def take_edits(self) -> tuple[PageEdit, ...]:
        """Return every page-table entry that changed since the last call, rows ascending.

        Entries of rows that ended become the null page, so no table names a page that its row does not hold.
        """
        edits: list[PageEdit] = []
        for row in sorted(self._tables):
            table = self._tables[row]
            if table.is_dirty:
                edits.extend(table.take_edits(row, self._group_names))
            if not table.is_open:
                del self._tables[row]
        return tuple(edits)

    # -- holders

    def _open(self, row: int) -> RowTable:
        table = self._tables.get(row)
        if table is None or not table.is_open:
            raise EngineError(f"row {row} has no request, but its pages were asked for")
        return table

    def _pack(self, token_ids: Sequence[int], number: int) -> bytes:
        return pack_tokens(token_ids[number * self.page_size : (number + 1) * self.page_size])

    def _hold(self, bundle: Bundle) -> None:
        if not bundle.num_holders:
            self._prefix.pin(bundle)
        bundle.num_holders += 1

    def _drop_all(self, bundles: Iterable[Bundle]) -> None:
        # Last page first: a page then becomes evictable after every page that follows it.
        for bundle in reversed(tuple(bundles)):
            bundle.num_holders -= 1
            if not bundle.num_holders and not self._prefix.unpin(bundle):
                self._pages.free(bundle)

    def _defer(self, bundles: Sequence[Bundle], retire_step: int) -> None:
        if retire_step <= self._retired_step:
            self._drop_all(bundles)
        elif bundles:
            self._deferred.setdefault(retire_step, []).extend(bundles)

    def check(self) -> None:
        """Assert every invariant: pages conserved, counts equal holders, published pages equal their tokens."""
        holders: Counter[Bundle] = Counter()
        for table in self._tables.values():
            assert table.is_open or not table.bundles
            assert len(set(table.bundles)) == len(table.bundles), "a row holds a bundle twice"
            holders.update(table.bundles)
            kept = min(table.dirty_from, len(table.bundles), len(table.shown))
            assert table.shown[:kept] == [bundle.pages for bundle in table.bundles[:kept]]
        for hit in self._hits:
            holders.update(hit.bundles)
        for bundles in self._deferred.values():
            holders.update(bundles)
        assert all(step > self._retired_step for step in self._deferred)
        for bundle in {*holders, *self._prefix.bundles}:
            assert bundle.num_holders == holders[bundle], f"{bundle.pages}: count differs from its holders"
        self._prefix.check()
        self._pages.check({*holders, *self._prefix.bundles})
        counts = self.counts
        assert counts.num_used == len(holders)
        assert counts.num_free + counts.num_cached + counts.num_used == counts.num_pages
