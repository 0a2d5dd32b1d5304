from __future__ import annotations

import pytest

from slipstream.base.errors import ConfigError, EngineError
from slipstream.cache.logical.pages import BundleAllocator, GroupSpec, PageAllocator
from slipstream.wire.ids import NULL_PAGE

GROUPS = (GroupSpec("target", 6), GroupSpec("index", 9))


def test_the_null_page_is_never_handed_out():
    allocator = PageAllocator(GroupSpec("target", 5))
    pages = [allocator.allocate() for _ in range(allocator.num_free)]
    assert sorted(pages) == [1, 2, 3, 4]
    assert NULL_PAGE not in pages


@pytest.mark.parametrize("page", [NULL_PAGE, -1, 5, 3])
def test_freeing_what_is_not_owned_is_an_error(page):
    allocator = PageAllocator(GroupSpec("target", 5))
    assert allocator.allocate() == 1
    with pytest.raises(EngineError, match=f"page {page} of cache group 'target'"):
        allocator.free(page)


def test_a_page_is_freed_once():
    allocator = PageAllocator(GroupSpec("target", 5))
    page = allocator.allocate()
    allocator.free(page)
    with pytest.raises(EngineError, match="freed once"):
        allocator.free(page)


def test_the_check_sees_a_lost_page_and_a_doubled_page():
    allocator = PageAllocator(GroupSpec("target", 5))
    page = allocator.allocate()
    allocator.check([page])
    with pytest.raises(AssertionError, match="each once"):
        allocator.check([])
    with pytest.raises(AssertionError, match="each once"):
        allocator.check([page, page])


def test_a_bundle_has_one_page_of_every_group_and_the_smallest_group_decides():
    allocator = BundleAllocator(GROUPS)
    assert allocator.num_bundles == allocator.num_free == 5
    bundles = [allocator.allocate() for _ in range(5)]
    assert allocator.num_free == 0
    assert sorted(bundle.pages[0] for bundle in bundles) == [1, 2, 3, 4, 5]
    assert len({bundle.pages[1] for bundle in bundles}) == 5
    allocator.check(bundles)
    with pytest.raises(EngineError, match="none is free"):
        allocator.allocate()


def test_ids_of_neighbouring_groups_differ():
    allocator = BundleAllocator((GroupSpec("target", 8), GroupSpec("index", 8)))
    bundles = [allocator.allocate() for _ in range(3)]
    assert all(bundle.pages[0] != bundle.pages[1] for bundle in bundles)


def test_a_held_bundle_cannot_be_freed():
    allocator = BundleAllocator(GROUPS)
    bundle = allocator.allocate()
    bundle.num_holders = 1
    with pytest.raises(EngineError, match="1 holders"):
        allocator.free(bundle)
    bundle.num_holders = 0
    allocator.free(bundle)
    allocator.check([])


@pytest.mark.parametrize(
    "groups",
    [(), (GroupSpec("target", 4), GroupSpec("target", 4)), (GroupSpec("target", 1),)],
    ids=["none", "same name", "only the null page"],
)
def test_groups_that_cannot_hold_anything_are_refused(groups):
    with pytest.raises(ConfigError, match="give at least"):
        BundleAllocator(groups)
