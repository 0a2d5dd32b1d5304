from __future__ import annotations

import pytest

from slipstream.base.errors import EngineError
from slipstream.cache.logical.pages import Bundle
from slipstream.cache.logical.prefix import PrefixIndex, chain_digest, pack_tokens
from slipstream.wire.ids import PageId


def held(page: int) -> Bundle:
    return Bundle((PageId(page),), num_holders=1)


def let_go(index: PrefixIndex, bundle: Bundle) -> None:
    bundle.num_holders = 0
    assert index.unpin(bundle)


A, B, C = (pack_tokens([number, number + 1]) for number in (0, 10, 20))


def test_packed_tokens_are_equal_exactly_when_the_ids_are():
    assert pack_tokens([1, 256]) != pack_tokens([256, 1]) != pack_tokens([1, 2])
    assert pack_tokens((7, 200_063)) == pack_tokens([7, 200_063])


def test_a_page_is_found_after_its_own_parent_only():
    index = PrefixIndex(b"model")
    first = index.insert(None, A, held(1))
    second = index.insert(first, B, held(2))
    assert index.find(None, A) is first
    assert index.find(first, B) is second
    assert index.find(None, B) is None
    assert index.find(second, B) is None
    index.check()


def test_the_digest_depends_on_the_salt_and_on_everything_before():
    seen: list[bytes] = []

    def spy(parent: bytes, tokens: bytes) -> bytes:
        seen.append(parent)
        return chain_digest(parent, tokens)

    PrefixIndex(b"model a", digest=spy).find(None, A)
    PrefixIndex(b"model b", digest=spy).find(None, A)
    assert seen[0] != seen[1]
    assert chain_digest(chain_digest(seen[0], A), C) != chain_digest(chain_digest(seen[0], B), C)


def test_content_that_is_there_already_keeps_its_first_page():
    index = PrefixIndex(b"")
    first = index.insert(None, A, held(1))
    assert index.insert(None, A, held(2)) is first
    assert [bundle.pages for bundle in index.bundles] == [(1,)]


def test_a_hash_collision_is_a_miss_and_is_not_published():
    index = PrefixIndex(b"", digest=lambda parent, tokens: b"same")
    first = index.insert(None, A, held(1))
    assert first is not None
    assert index.find(None, B) is None
    assert index.find(first, A) is None  # equal tokens and equal hash, but another parent
    assert index.insert(None, B, held(2)) is None
    assert index.insert(first, A, held(3)) is None
    index.check()


def test_eviction_takes_the_least_recently_used_leaf_first():
    index = PrefixIndex(b"")
    bundles = [held(page) for page in range(4)]
    root = index.insert(None, A, bundles[0])
    left = index.insert(root, A, bundles[1])
    index.insert(root, B, bundles[2])
    index.insert(left, C, bundles[3])
    for number in (3, 1, 2, 0):
        let_go(index, bundles[number])
    index.pin(bundles[3])
    let_go(index, bundles[3])  # used again: now the latest
    assert [index.evict() for _ in range(4)] == [[bundles[number]] for number in (2, 3, 1, 0)]
    assert index.num_unpinned == 0


def test_a_parent_is_never_evicted_before_an_unheld_child():
    index = PrefixIndex(b"")
    parent, child = held(1), held(2)
    index.insert(index.insert(None, A, parent), B, child)
    let_go(index, parent)
    let_go(index, child)
    assert index.evict() == [child]
    assert index.evict() == [parent]
    with pytest.raises(EngineError, match="nothing to evict"):
        index.evict()


def test_a_held_page_is_never_evicted():
    index = PrefixIndex(b"")
    pinned, loose = held(1), held(2)
    index.insert(None, A, pinned)
    index.insert(None, B, loose)
    let_go(index, pinned)
    index.pin(pinned)
    pinned.num_holders = 1
    let_go(index, loose)
    assert index.evict() == [loose]
    with pytest.raises(EngineError, match="every indexed page is held"):
        index.evict()
    assert index.find(None, A) is not None


def test_an_unheld_page_before_a_held_one_goes_last_and_takes_it_out_of_the_index():
    index = PrefixIndex(b"")
    bundles = [held(page) for page in range(4)]
    parent = index.insert(None, A, bundles[0])
    child = index.insert(parent, B, bundles[1])  # its holder uses a duplicate of the parent
    index.insert(child, C, bundles[2])
    index.insert(None, C, bundles[3])
    let_go(index, bundles[0])
    let_go(index, bundles[2])
    let_go(index, bundles[3])
    assert index.evict() == [bundles[2]]
    assert index.evict() == [bundles[3]]
    assert index.find(parent, B) is child
    assert index.evict() == [bundles[0]]
    assert child is not None
    assert not child.is_alive
    assert index.find(None, A) is None
    assert index.bundles == ()
    assert not index.unpin(bundles[1])


def test_removing_a_page_takes_what_follows_it():
    index = PrefixIndex(b"")
    bundles = [held(page) for page in range(3)]
    node = None
    for number, tokens in enumerate((A, B, C)):
        node = index.insert(node, tokens, bundles[number])
    let_go(index, bundles[2])
    assert index.remove(bundles[1]) == [bundles[2]]
    assert index.bundles == (bundles[0],)
    assert index.remove(bundles[1]) == []
    index.check()


def test_publishing_what_nobody_holds_or_what_has_lost_its_parent_is_an_error():
    index = PrefixIndex(b"")
    with pytest.raises(EngineError, match="cannot be published"):
        index.insert(None, A, Bundle((PageId(1),)))
    orphan = index.insert(None, A, held(1))
    assert orphan is not None
    index.remove(orphan.bundle)
    with pytest.raises(EngineError, match="orphan"):
        index.insert(orphan, B, held(2))
