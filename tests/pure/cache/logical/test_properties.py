"""Properties of the cache under any sequence of operations, against a model that stores contents.

The model plays scheduler and device: it writes digests of prefixes into the pages that edits name, lets steps retire
late, and knows at any time which pages somebody may still read or write.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.cache.logical.manager import CacheManager
from slipstream.cache.logical.pages import GroupSpec
from slipstream.cache.logical.prefix import chain_digest
from support.fake_runner import extend_digest, prefix_digest

PAGE = 3
MAX_ROWS = 4
MAX_TOKENS = 24
Pages = frozenset[tuple[str, int]]


@dataclass
class ModelRow:
    tokens: list[int]
    num_hit: int
    num_written: int
    num_computed: int
    last_step: int = -1
    tables: dict[str, dict[int, int]] = field(default_factory=lambda: {"target": {}, "index": {}})

    def pages(self) -> Pages:
        return frozenset((group, page) for group, table in self.tables.items() for page in table.values() if page)


class CacheModel:
    """Applies operations chosen by numbers to a cache and checks the properties after each."""

    def __init__(self, num_pages: int, digest=chain_digest) -> None:
        groups = (GroupSpec("target", num_pages + 1), GroupSpec("index", num_pages + 2))
        self.cache = CacheManager(groups, PAGE, b"salt", digest=digest)
        self.rows: dict[int, ModelRow] = {}
        self.contents: dict[tuple[str, int, int], int] = {}
        self.flying: deque[tuple[int, dict[int, int]]] = deque()  # step, row -> tokens written after it
        self.given_up: list[tuple[int, Pages]] = []  # retire step, pages
        self.next_step = 0
        self.num_hit_pages = 0
        self.operations: list[Callable[[int], None]] = [
            self.start, self.step, self.step, self.retire, self.release, self.trim, self.look_up
        ]  # fmt: skip

    def apply(self, operation: int, number: int) -> None:
        self.operations[operation % len(self.operations)](number)
        self.show()
        self.cache.check()
        self.check_tables()

    # -- operations

    def start(self, number: int) -> None:
        row = number % MAX_ROWS
        if row in self.rows:
            return
        rng = random.Random(number)
        family = rng.randrange(2)
        tokens = [family] * rng.randint(1, 14) + [rng.randrange(3) for _ in range(rng.randint(0, 6))]
        hit = self.cache.match(tokens)
        self.check_hit(tokens, hit)
        self.cache.attach(row, hit)
        self.rows[row] = ModelRow(tokens, hit.num_tokens // PAGE, hit.num_tokens, hit.num_tokens)
        self.num_hit_pages += len(hit.bundles)

    def step(self, number: int) -> None:
        """Plan and run a step for some rows: each writes a few tokens, known or newly drawn."""
        if len(self.flying) == 2:
            self.retire(0)
        rng = random.Random(number)
        written: dict[int, int] = {}
        for row, state in self.rows.items():
            end = state.num_written + rng.randint(0, 5)
            if end == state.num_written or end > MAX_TOKENS:
                continue
            held, before = self.held_pages(), state.pages()
            if not self.cache.ensure(row, end + rng.randint(0, 4)):
                self.cache.check()
                continue
            self.show()
            assert not (state.pages() - before) & held, "a page that somebody holds was handed out"
            while len(state.tokens) < end:
                state.tokens.append(rng.randrange(3))
            self.write(row, state.num_written, end)
            state.num_written, state.last_step = end, self.next_step
            written[row] = end
        self.flying.append((self.next_step, written))
        self.next_step += 1

    def retire(self, number: int) -> None:
        if not self.flying:
            return
        step, written = self.flying.popleft()
        self.cache.on_retired(step)
        self.given_up = [(retire, pages) for retire, pages in self.given_up if retire > step]
        for row, end in written.items():
            state = self.rows.get(row)
            if state is not None and state.num_computed < end <= state.num_written:
                state.num_computed = end
                self.cache.publish(row, state.tokens, end)

    def release(self, number: int) -> None:
        row = number % MAX_ROWS
        state = self.rows.pop(row, None)
        if state is not None:
            self.give_up(state, state.pages())
            self.flying = deque((step, {r: e for r, e in written.items() if r != row}) for step, written in self.flying)
            self.cache.release(row, state.last_step)

    def trim(self, number: int) -> None:
        row = number % MAX_ROWS
        if row in self.rows:
            state = self.rows[row]
            before = state.pages()
            self.cache.trim(row, state.num_written, state.last_step)
            self.show()
            self.give_up(state, before - state.pages())

    def look_up(self, number: int) -> None:
        rng = random.Random(number)
        tokens = [rng.randrange(2)] * rng.randint(1, 14) + [rng.randrange(3) for _ in range(6)]
        hit = self.cache.match(tokens)
        self.cache.check()
        self.check_hit(tokens, hit)
        self.cache.unpin(hit)

    # -- the model's side

    def give_up(self, state: ModelRow, pages: Pages) -> None:
        if state.last_step in [step for step, _ in self.flying]:
            self.given_up.append((state.last_step, pages))

    def held_pages(self) -> Pages:
        pages = frozenset[tuple[str, int]]().union(*(state.pages() for state in self.rows.values()))
        return pages.union(*(given for _, given in self.given_up))

    def show(self) -> None:
        for edit in self.cache.take_edits():
            if edit.row in self.rows:
                self.rows[edit.row].tables[edit.group].update(enumerate(edit.pages, edit.first))

    def write(self, row: int, start: int, end: int) -> None:
        state = self.rows[row]
        digest = prefix_digest(state.tokens[:start])
        for position in range(start, end):
            digest = extend_digest(digest, state.tokens[position])
            for group, table in state.tables.items():
                page = table[position // PAGE]
                assert page
                others = [
                    other for other in self.rows.values() if other is not state and (group, page) in other.pages()
                ]
                assert not others, "a page has two users while one of them writes it"
                assert not any((group, page) in given for _, given in self.given_up)
                self.contents[group, page, position % PAGE] = digest

    def check_hit(self, tokens: list[int], hit) -> None:
        assert hit.num_tokens == len(hit.bundles) * PAGE < len(tokens)
        digest = prefix_digest([])
        for position in range(hit.num_tokens):
            digest = extend_digest(digest, tokens[position])
            pages = hit.bundles[position // PAGE].pages
            for group, page in zip(("target", "index"), pages, strict=True):
                assert self.contents[group, page, position % PAGE] == digest, "a hit on other content"

    def check_tables(self) -> None:
        for row, state in self.rows.items():
            for group, table in state.tables.items():
                digest = prefix_digest([])
                for position in range(state.num_written):
                    digest = extend_digest(digest, state.tokens[position])
                    page = table[position // PAGE]
                    assert self.contents[group, page, position % PAGE] == digest, f"row {row} lost a page"

    def finish(self) -> None:
        for row in list(self.rows):
            self.release(row)
        while self.flying:
            self.retire(0)
        self.cache.check()
        counts = self.cache.counts
        assert counts.num_used == 0
        assert counts.num_free + counts.num_cached == counts.num_pages


OPERATIONS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 400)), max_size=60)


@settings(deadline=None, max_examples=150, database=None)
@given(num_pages=st.integers(2, 20), operations=OPERATIONS)
def test_pages_are_conserved_and_counts_equal_holders_under_any_sequence(num_pages, operations):
    model = CacheModel(num_pages)
    for operation, number in operations:
        model.apply(operation, number)
    model.finish()


@settings(deadline=None, max_examples=60, database=None)
@given(operations=OPERATIONS, num_values=st.integers(1, 4))
def test_a_poor_hash_never_gives_a_wrong_page(operations, num_values):
    """A match returns whole pages whose tokens are equal, parents included, even when hashes collide."""
    model = CacheModel(12, digest=lambda parent, tokens: bytes([sum(tokens) % num_values]))
    for operation, number in operations:
        model.apply(operation, number)
    model.finish()


@pytest.mark.parametrize("seed", range(4))
def test_long_random_use_keeps_every_property(seed):
    """Conservation, one writer, right matches, and no eviction of a held page, over 3,000 operations."""
    rng = random.Random(seed)
    model = CacheModel(num_pages=8 + 5 * seed)
    for _ in range(3000):
        model.apply(rng.randrange(7), rng.randrange(100_000))
    assert model.num_hit_pages > 100
    model.finish()


class ForgetfulCache(CacheManager):
    """A mutant: releases and trims without waiting for the step in flight."""

    def release(self, row, retire_step=-1):
        super().release(row)

    def trim(self, row, num_tokens, retire_step=-1):
        return super().trim(row, num_tokens)


class HastyCache(CacheManager):
    """A mutant: publishes one page more than is computed."""

    def publish(self, row, token_ids, num_computed_tokens):
        super().publish(row, token_ids, min(num_computed_tokens + self.page_size, len(token_ids)))


def use_for_long(cache_type: type[CacheManager]) -> None:
    rng = random.Random(0)
    model = CacheModel(num_pages=9)
    model.cache.__class__ = cache_type
    for _ in range(3000):
        model.apply(rng.randrange(7), rng.randrange(100_000))


@pytest.mark.parametrize("mutant", [ForgetfulCache, HastyCache])
def test_the_model_catches_a_cache_that_is_wrong(mutant):
    use_for_long(CacheManager)
    with pytest.raises((AssertionError, KeyError)):
        use_for_long(mutant)
