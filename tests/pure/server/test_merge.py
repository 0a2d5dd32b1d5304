"""Merged iterators lose nothing, keep each source's order, and are closed together."""

from __future__ import annotations

import asyncio

import pytest

from slipstream.server.merge import merge
from support.http_world import run


async def source(items, closed, pause=0.0):
    try:
        for item in items:
            await asyncio.sleep(pause)
            yield item
    finally:
        closed.append(True)


def test_everything_comes_in_the_order_of_its_source():
    async def body():
        closed = []
        sources = [source(range(n), closed, pause) for n, pause in ((5, 0.001), (0, 0), (3, 0), (2, 0.003))]
        seen = [item async for item in merge(sources)]
        assert len(closed) == 4
        for place, count in ((0, 5), (1, 0), (2, 3), (3, 2)):
            assert [item for where, item in seen if where == place] == list(range(count))

    run(body)


def test_nothing_merges_to_nothing():
    async def body():
        assert [item async for item in merge([])] == []

    run(body)


def test_an_error_ends_it_and_the_others_are_cancelled():
    async def failing():
        yield 1
        raise ValueError("wrong")

    async def body():
        closed = []
        with pytest.raises(ValueError, match="wrong"):
            async for _ in merge([failing(), source([1], closed, 60)]):
                pass
        assert closed == [True]

    run(body)


def test_closing_it_early_cancels_the_others():
    async def body():
        closed = []
        merged = merge([source([1, 2], closed), source([1], closed, 60)])
        assert await anext(merged) == (0, 1)
        await merged.aclose()
        assert len(closed) == 2

    run(body)
