"""Threads are bounded, and a place counts until its thread is done, whether or not anybody still waits."""

from __future__ import annotations

import asyncio
import threading

import pytest

from slipstream.frontend.text_threads import LONG_TEXT_CHARS, NUM_LONG_THREADS, NUM_SHORT_THREADS, TextThreads
from support.processes import wait_until


class Gate:
    """Work that waits until it is let go, and counts how many wait in it at once."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.num_inside = 0
        self.most_inside = 0
        self._lock = threading.Lock()

    def __call__(self) -> str:
        with self._lock:
            self.num_inside += 1
            self.most_inside = max(self.most_inside, self.num_inside)
        assert self.open.wait(30)
        with self._lock:
            self.num_inside -= 1
        return "done"


def run(body):
    async def limited():
        threads = TextThreads()
        try:
            await asyncio.wait_for(body(threads), 60)
        finally:
            threads.close()
            threads.close()

    asyncio.run(limited())


async def until(condition) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def test_the_result_and_the_error_of_the_work_come_back():
    async def body(threads):
        assert await threads.run(lambda: 3, 1) == 3
        with pytest.raises(ZeroDivisionError):
            await threads.run(lambda: 1 // 0, 1)
        assert threads.num_held == 0

    run(body)


@pytest.mark.parametrize(
    ("num_chars", "num_threads"), [(LONG_TEXT_CHARS, NUM_SHORT_THREADS), (LONG_TEXT_CHARS + 1, NUM_LONG_THREADS)]
)
def test_no_more_run_at_once_than_there_are_threads(num_chars, num_threads):
    async def body(threads):
        gate = Gate()
        tasks = [asyncio.create_task(threads.run(gate, num_chars)) for _ in range(20)]
        await until(lambda: gate.num_inside == num_threads)
        assert threads.num_held == 20
        gate.open.set()
        assert await asyncio.gather(*tasks) == ["done"] * 20
        assert gate.most_inside == num_threads
        assert threads.num_held == 0

    run(body)


def test_short_texts_do_not_wait_behind_long_ones():
    async def body(threads):
        gate = Gate()
        tasks = [asyncio.create_task(threads.run(gate, LONG_TEXT_CHARS + 1)) for _ in range(20)]
        await until(lambda: gate.num_inside == NUM_LONG_THREADS)
        assert await threads.run(lambda: "short", 1) == "short"
        gate.open.set()
        await asyncio.gather(*tasks)

    run(body)


def test_a_place_counts_until_the_thread_is_done():
    async def body(threads):
        gate = Gate()
        task = asyncio.create_task(threads.run(gate, 1))
        await until(lambda: gate.num_inside == 1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert threads.num_held == 1
        gate.open.set()
        await until(lambda: threads.num_held == 0)

    run(body)


def test_work_that_waits_is_dropped_when_its_caller_leaves():
    async def body(threads):
        gate, called = Gate(), []
        running = [asyncio.create_task(threads.run(gate, 1)) for _ in range(NUM_SHORT_THREADS)]
        await until(lambda: gate.num_inside == NUM_SHORT_THREADS)
        waiting = asyncio.create_task(threads.run(lambda: called.append(1), 1))
        await until(lambda: threads.num_held == NUM_SHORT_THREADS + 1)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert threads.num_held == NUM_SHORT_THREADS
        gate.open.set()
        await asyncio.gather(*running)
        assert called == []

    run(body)


def test_a_thread_that_outlives_the_loop_does_no_harm():
    gate = Gate()
    threads = TextThreads()

    async def leave():
        task = asyncio.create_task(threads.run(gate, 1))
        await until(lambda: gate.num_inside == 1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(leave())
    threads.close()
    gate.open.set()
    assert wait_until(lambda: gate.num_inside == 0)
