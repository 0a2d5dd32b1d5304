from pathlib import Path

import pytest

from slipstream.base.errors import CapacityError
from slipstream.config.bytes import CacheGeometry, cache_geometry
from slipstream.config.capacity import PagePlan, pages_for, plan_pages
from slipstream.config.checkpoint import read_target
from support.tiny_checkpoints import write_tiny_config


@pytest.fixture
def geometry(tmp_path: Path) -> CacheGeometry:
    return cache_geometry(read_target(write_tiny_config(tmp_path)), None, dtype="float32", page_size=8, num_pages=1)


def plan(geometry: CacheGeometry, kv_cache_bytes: int | None, available: int) -> PagePlan:
    return plan_pages(
        geometry, max_model_len=100, max_num_seqs=4, kv_cache_bytes=kv_cache_bytes, available_bytes=available
    )


def test_pages_are_rounded_up() -> None:
    assert [pages_for(tokens, 8) for tokens in (0, 1, 8, 9)] == [0, 1, 1, 2]


def test_auto_holds_every_request_in_full_when_memory_allows(geometry: CacheGeometry) -> None:
    assert plan(geometry, None, 10**9).num_pages == 4 * 13 + 1


def test_auto_takes_at_most_a_quarter(geometry: CacheGeometry) -> None:
    budget = 20 * geometry.page_bytes
    tight = plan(geometry, None, 4 * budget)
    assert tight.num_pages == 20
    assert "1 of 4 requests" in tight.note


def test_memory_that_nobody_else_uses_is_the_cache_s(geometry: CacheGeometry) -> None:
    available = 20 * geometry.page_bytes + 3
    own = plan_pages(
        geometry, max_model_len=100, max_num_seqs=4, kv_cache_bytes=None, available_bytes=available, is_shared=False
    )
    assert own.num_pages == 20
    assert own.note.startswith(f"the {available} bytes of free memory")


@pytest.mark.parametrize("is_shared", [True, False])
def test_a_larger_size_is_advised_only_where_there_is_more(geometry: CacheGeometry, is_shared: bool) -> None:
    with pytest.raises(CapacityError, match="lower max_model_len to at most") as caught:
        plan_pages(
            geometry,
            max_model_len=10_000,
            max_num_seqs=1,
            kv_cache_bytes=None,
            available_bytes=40 * geometry.page_bytes,
            is_shared=is_shared,
        )
    assert ("or give a larger kv_cache_bytes" in str(caught.value)) == is_shared


def test_a_given_size_is_used_to_the_last_whole_page(geometry: CacheGeometry) -> None:
    assert plan(geometry, 30 * geometry.page_bytes + 5, 10**9).num_pages == 30


def test_the_least_cache_is_one_full_request_and_the_null_page(geometry: CacheGeometry) -> None:
    least = 14 * geometry.page_bytes
    assert plan(geometry, least, 10**9).num_pages == 14
    with pytest.raises(CapacityError) as caught:
        plan(geometry, least - 1, 10**9)
    message = str(caught.value)
    for words in (f"needs {least} bytes", f"gives {least - 1}", "13 pages of 8 tokens", "at most 96"):
        assert words in message
    with pytest.raises(CapacityError, match="a quarter of the"):
        plan(geometry, None, 4 * least - 4)


def test_a_size_beyond_the_memory_is_refused_with_both_numbers(geometry: CacheGeometry) -> None:
    with pytest.raises(CapacityError, match=r"kv_cache_bytes=5000000: only 4000000 bytes"):
        plan(geometry, 5_000_000, 4_000_000)
