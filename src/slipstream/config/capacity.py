"""How many pages the cache gets: exact integers, and a refusal with numbers when too few fit.

Not here: what a page holds; see `bytes`.
"""

from __future__ import annotations

from typing import NamedTuple

from slipstream.base.errors import CapacityError
from slipstream.config.bytes import CacheGeometry

HOST_SHARE = 4
"""On a CPU the cache takes at most one part in this many of the free memory unless it is told a size: others live there
too. A GPU is the engine's own, and all of what is free is the cache's."""


class PagePlan(NamedTuple):
    """A number of pages and the reason for it."""

    num_pages: int
    note: str


def pages_for(num_tokens: int, page_size: int) -> int:
    """Return the pages that hold so many tokens."""
    return -(-num_tokens // page_size)


def plan_pages(
    geometry: CacheGeometry,
    *,
    max_model_len: int,
    max_num_seqs: int,
    kv_cache_bytes: int | None,
    available_bytes: int,
    is_shared: bool = True,
) -> PagePlan:
    """Decide the number of pages, the null page included.

    A request never holds a page past max_model_len, whatever the scheduler reserves for steps in flight, so the least
    useful cache is one request of full length and the null page.

    Args:
        geometry: the pools; its num_pages is not read.
        max_model_len: longest request in tokens.
        max_num_seqs: requests that run at once.
        kv_cache_bytes: size the user asked for, or None.
        available_bytes: memory that may be used, everything but the pages already taken off.
        is_shared: the memory is the host's, which others use too.

    Returns:
        The plan.

    Raises:
        CapacityError: not even one request of full length fits, or the asked size exceeds the memory.
    """
    page_bytes = geometry.page_bytes
    per_request = pages_for(max_model_len, geometry.page_size)
    least = per_request + 1
    if kv_cache_bytes is None:
        budget, source = available_bytes, f"the {available_bytes} bytes of free memory"
        if is_shared:
            budget, source = budget // HOST_SHARE, f"a quarter of {source}"
    else:
        budget, source = kv_cache_bytes, "kv_cache_bytes"
        if kv_cache_bytes > available_bytes:
            raise CapacityError(
                f"kv_cache_bytes={kv_cache_bytes}: only {available_bytes} bytes of memory are free after weights and "
                "rows; give fewer"
            )
    affordable = budget // page_bytes
    if affordable < least:
        fitting = max(affordable - 1, 0) * geometry.page_size
        remedy = f"lower max_model_len to at most {fitting}" if fitting >= 2 else "free memory"
        if budget < available_bytes:
            remedy += ", or give a larger kv_cache_bytes"
        raise CapacityError(
            f"one request of max_model_len={max_model_len} tokens needs {least * page_bytes} bytes of cache "
            f"({per_request} pages of {geometry.page_size} tokens and the null page, {page_bytes} bytes each), but "
            f"{source} gives {budget}: {remedy}"
        )
    if kv_cache_bytes is not None:
        return PagePlan(affordable, f"what {kv_cache_bytes} bytes hold, the null page included")
    wanted = max_num_seqs * per_request + 1
    if wanted <= affordable:
        return PagePlan(wanted, f"{max_num_seqs} requests of {per_request} pages, and the null page")
    held = (affordable - 1) // per_request
    return PagePlan(
        affordable,
        f"{source}; holds {held} of {max_num_seqs} requests of full length at once, shorter ones share the rest",
    )
