from __future__ import annotations

import pytest

from slipstream.base.errors import ConfigError, EngineError
from slipstream.cache.logical.manager import CacheManager
from slipstream.cache.logical.pages import GroupSpec
from slipstream.cache.logical.prefix import chain_digest

PAGE = 4


def make_cache(num_pages: int = 8, **options) -> CacheManager:
    groups = (GroupSpec("target", num_pages + 1), GroupSpec("index", num_pages + 3))
    return CacheManager(groups, PAGE, b"salt", **options)


def start(cache: CacheManager, row: int, tokens: list[int], num_tokens: int | None = None) -> int:
    hit = cache.match(tokens)
    cache.attach(row, hit)
    assert cache.ensure(row, num_tokens or len(tokens))
    cache.check()
    return hit.num_tokens


def pages(cache: CacheManager, group: str = "target") -> dict[int, dict[int, int]]:
    """Return row -> entry -> page of the edits since the last call."""
    tables: dict[int, dict[int, int]] = {}
    for edit in cache.take_edits():
        if edit.group == group:
            tables.setdefault(edit.row, {}).update(enumerate(edit.pages, edit.first))
    return tables


def test_ensure_gives_whole_pages_of_every_group_or_nothing():
    cache = make_cache(3)
    start(cache, 0, [1], 5)
    assert cache.num_missing(0, 12) == 1
    assert not cache.ensure(0, 13)
    assert cache.counts.num_free == 1
    assert cache.ensure(0, 12)
    assert cache.ensure(0, 1)
    edits = cache.take_edits()
    assert [(edit.group, len(edit.pages)) for edit in edits] == [("target", 3), ("index", 3)]
    assert not set(edits[0].pages) & {0}
    cache.check()


def test_a_hit_covers_whole_pages_and_leaves_one_token_to_compute():
    cache = make_cache()
    tokens = list(range(12))
    start(cache, 0, tokens)
    cache.publish(0, tokens, 12)
    for length, expected in [(1, 0), (4, 0), (5, 4), (8, 4), (9, 8), (12, 8), (13, 12), (40, 12)]:
        hit = cache.match((tokens + [50] * 40)[:length])
        assert hit.num_tokens == expected, length
        cache.unpin(hit)
    cache.check()


def test_a_hit_holds_the_same_pages_in_every_group():
    cache = make_cache()
    tokens = list(range(9))
    start(cache, 0, tokens)
    cache.publish(0, tokens, 9)
    first = {edit.group: edit.pages for edit in cache.take_edits()}
    assert start(cache, 1, tokens) == 8
    second = {edit.group: edit.pages for edit in cache.take_edits()}
    for group in ("target", "index"):
        assert second[group][:2] == first[group][:2]
        assert second[group][2] != first[group][2]
    assert first["target"] != first["index"]


def test_prefix_off_publishes_and_finds_nothing():
    tokens = list(range(9))
    cache = make_cache(enable_prefix=False)
    start(cache, 0, tokens)
    cache.publish(0, tokens, 9)
    assert cache.match(tokens).num_tokens == 0
    cache.release(0)
    assert cache.counts.num_free == cache.num_pages


def test_only_full_pages_of_retired_tokens_are_published():
    cache = make_cache()
    tokens = list(range(12))
    start(cache, 0, tokens)
    for num_computed, expected in [(0, 0), (3, 0), (4, 4), (7, 4), (8, 8)]:
        cache.publish(0, tokens, num_computed)
        hit = cache.match(tokens)
        assert hit.num_tokens == expected
        cache.unpin(hit)


def test_a_duplicate_page_stays_with_its_row_and_is_freed_once():
    cache = make_cache()
    tokens = list(range(8))
    start(cache, 0, tokens)
    start(cache, 1, tokens)
    tables = pages(cache)
    cache.publish(0, tokens, 8)
    cache.publish(1, tokens, 8)
    cache.check()
    assert cache.counts.num_used == 4
    assert set(tables[0].values()).isdisjoint(tables[1].values())
    assert cache.match(tokens).num_tokens == 4
    cache.release(1)
    cache.check()
    assert cache.counts.num_free == 6
    cache.release(0)
    cache.check()


def test_what_follows_a_duplicate_is_published_and_survives_it():
    cache = make_cache(8)
    tokens = list(range(13))
    start(cache, 0, tokens[:5])
    start(cache, 1, tokens)
    cache.publish(0, tokens, 4)
    cache.publish(1, tokens, 12)
    cache.release(1)
    cache.release(0)
    cache.check()
    assert cache.match(tokens).num_tokens == 12


def test_every_unheld_page_can_be_had_even_before_a_held_one():
    """A page that nobody holds, before pages of a row with a duplicate of it, must not shrink the cache."""
    cache = make_cache(6)
    tokens = list(range(21))
    start(cache, 0, tokens[:5])
    start(cache, 1, tokens[:13])
    cache.publish(0, tokens, 4)
    cache.publish(1, tokens, 12)
    cache.release(0)
    assert cache.num_available == 2
    assert cache.ensure(1, 21)
    cache.check()
    cache.publish(1, tokens, 20)  # its path was evicted: published again from the start
    cache.check()
    cache.release(1)
    assert cache.match(tokens).num_tokens == 20


def test_a_row_that_lost_its_path_publishes_no_page_of_another_row():
    cache = make_cache(8)
    tokens = list(range(13))
    start(cache, 0, tokens[:5])
    cache.publish(0, tokens, 4)
    assert start(cache, 1, tokens) == 4
    cache.forget(0)
    cache.check()
    cache.publish(1, tokens, 12)
    assert cache.match(tokens).num_tokens == 0
    cache.release(0)
    cache.release(1)
    cache.check()
    assert cache.counts.num_free == cache.num_pages


def test_forget_takes_found_pages_out_too_and_their_holders_do_not_bring_them_back():
    """Row 0 wrote a page that is not finite; row 1 finds it and shows it; row 2 must not find it."""
    cache = make_cache(12)
    tokens = list(range(13))
    start(cache, 0, tokens[:5])
    cache.publish(0, tokens, 4)
    assert start(cache, 1, tokens) == 4
    cache.forget(1)
    cache.check()
    assert start(cache, 2, tokens) == 0
    cache.publish(0, tokens, 5)
    cache.publish(1, tokens, 12)
    assert cache.match(tokens).num_tokens == 0
    cache.publish(2, tokens, 12)
    assert cache.match(tokens).num_tokens == 12, "a fresh computation of the same content is findable"
    for row in range(3):
        cache.release(row)
    cache.check()


def test_a_found_prefix_is_extended_from_where_it_ended():
    digested: list[bytes] = []

    def digest(parent: bytes, tokens: bytes) -> bytes:
        digested.append(tokens)
        return chain_digest(parent, tokens)

    cache = make_cache(12, digest=digest)
    tokens = list(range(21))
    start(cache, 0, tokens)
    cache.publish(0, tokens, 12)
    first = cache.find(tokens)
    assert (first.num_tokens, cache.counts.num_used) == (12, 6)
    digested.clear()
    assert cache.find(tokens, first) is first
    assert len(digested) == 1, "only the page after the known ones is looked up"
    cache.publish(0, tokens, 20)
    digested.clear()
    assert cache.find(tokens, first).num_tokens == 20
    assert len(digested) == 2
    cache.forget(0)
    assert cache.find(tokens, first).num_tokens == 0, "pages that left the index are not found through an old result"


def test_a_collision_ends_publication_and_never_gives_a_wrong_page():
    cache = make_cache(8, digest=lambda parent, tokens: b"same")
    start(cache, 0, list(range(9)))
    cache.publish(0, list(range(9)), 8)
    cache.publish(0, list(range(9)), 8)
    assert cache.match(list(range(9))).num_tokens == 4
    assert cache.match(list(range(50, 59))).num_tokens == 0
    start(cache, 1, list(range(50, 59)))
    cache.publish(1, list(range(50, 59)), 8)
    assert cache.match(list(range(50, 59))).num_tokens == 0
    cache.check()


def test_released_pages_wait_for_the_step_in_flight():
    cache = make_cache(4)
    cache.on_retired(6)
    start(cache, 0, [1, 2, 3], 16)
    cache.release(0, retire_step=8)
    assert cache.num_deferred == 4
    assert cache.num_available == 0
    cache.on_retired(7)
    assert cache.num_available == 0
    cache.check()
    cache.on_retired(8)
    assert cache.num_deferred == 0
    assert cache.num_available == 4
    cache.check()


def test_a_release_after_its_last_step_takes_effect_at_once():
    cache = make_cache(4)
    cache.on_retired(8)
    start(cache, 0, [1, 2, 3], 16)
    cache.release(0, retire_step=8)
    assert cache.num_available == 4


def test_a_deferred_published_page_can_be_matched_but_not_evicted():
    cache = make_cache(4)
    tokens = list(range(9))
    start(cache, 0, tokens)
    cache.publish(0, tokens, 8)
    cache.release(0, retire_step=0)
    hit = cache.match(tokens)
    assert hit.num_tokens == 8
    cache.attach(1, hit)
    assert not cache.ensure(1, 16)
    cache.on_retired(0)
    assert cache.ensure(1, 16)
    cache.check()


def test_trim_returns_the_surplus_and_blanks_the_table():
    cache = make_cache(4)
    start(cache, 0, [1, 2, 3], 16)
    before = pages(cache)[0]
    assert cache.trim(0, 5, retire_step=0) == 2
    assert cache.num_available == 0
    assert pages(cache) == {0: {2: 0, 3: 0}}
    cache.on_retired(0)
    assert cache.num_available == 2
    assert cache.trim(0, 5) == 0
    assert cache.ensure(0, 12)
    assert pages(cache)[0][2] in (before[2], before[3])
    cache.check()


def test_a_published_page_is_not_trimmed():
    cache = make_cache()
    start(cache, 0, list(range(8)))
    cache.publish(0, list(range(8)), 8)
    with pytest.raises(EngineError, match="trimmed to 1 pages, but 2"):
        cache.trim(0, 4)


def test_a_released_row_leaves_a_blank_table_and_a_restarted_one_is_written_anew():
    cache = make_cache()
    start(cache, 0, [1], 8)
    start(cache, 1, [1], 8)
    pages(cache)
    cache.release(0)
    cache.release(1)
    start(cache, 1, [2], 4)
    edits = pages(cache)
    assert edits[0] == {0: 0, 1: 0}
    assert list(edits[1]) == [0]
    assert edits[1][0] != 0
    assert cache.take_edits() == ()


def test_eviction_makes_room_and_spares_held_pages():
    cache = make_cache(4)
    old, kept = list(range(9)), list(range(40, 49))
    start(cache, 0, old, 8)
    cache.publish(0, old, 8)
    cache.release(0)
    start(cache, 1, kept, 8)
    cache.publish(1, kept, 8)
    assert cache.counts.num_cached == 2
    assert cache.ensure(1, 12)
    assert cache.match(old).num_tokens == 4  # its last page went first
    cache.check()
    assert not cache.ensure(1, 20)


def test_a_request_that_ended_earlier_is_evicted_before_one_that_ended_later():
    cache = make_cache(6)
    old, new = list(range(13)), list(range(40, 53))
    for tokens in (old, new):
        start(cache, 0, tokens, 12)
        cache.publish(0, tokens, 12)
        cache.release(0)
    start(cache, 0, [99], 12)
    assert cache.match(old).num_tokens == 0
    assert cache.match(new).num_tokens == 12


def test_misuse_of_rows_is_an_error():
    cache = make_cache()
    start(cache, 0, [1])
    with pytest.raises(EngineError, match="another one owns it"):
        cache.attach(0, cache.match([1]))
    for use in (cache.release, lambda row: cache.ensure(row, 1), lambda row: cache.publish(row, [1], 1)):
        with pytest.raises(EngineError, match="row 5 has no request"):
            use(5)


def test_a_page_size_below_one_is_refused():
    with pytest.raises(ConfigError, match="page_size=0"):
        CacheManager((GroupSpec("target", 4),), 0)


def test_the_check_sees_a_wrong_count():
    cache = make_cache()
    hit = cache.match([1])
    cache.attach(0, hit)
    cache.ensure(0, 4)
    cache.check()
    cache._tables[0].bundles[0].num_holders += 1
    with pytest.raises(AssertionError, match="differs from its holders"):
        cache.check()
