"""Work on text in threads beside the event loop, with places that are counted until the work has really ended.

Not here: what the work is, and how many places there are.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_Result = TypeVar("_Result")

LONG_TEXT_CHARS = 20_000
"""Longer text has threads of its own, so that short texts do not wait behind it."""

NUM_SHORT_THREADS = 4
NUM_LONG_THREADS = 2


class TextThreads:
    """A bounded number of threads. Use it from one event loop; close it there.

    Attributes:
        num_held: pieces of work that wait or run. A thread cannot be stopped: work whose caller left counts until its
            thread is done with it.
    """

    def __init__(self) -> None:
        self.num_held = 0
        self._short = ThreadPoolExecutor(NUM_SHORT_THREADS, thread_name_prefix="text")
        self._long = ThreadPoolExecutor(NUM_LONG_THREADS, thread_name_prefix="long-text")

    async def run(self, work: Callable[[], _Result], num_chars: int) -> _Result:
        """Return what the work returns.

        When the caller is cancelled, work that still waits is dropped.

        Args:
            work: called in a thread.
            num_chars: length of the text that it reads.
        """
        loop = asyncio.get_running_loop()
        threads = self._long if num_chars > LONG_TEXT_CHARS else self._short
        future = threads.submit(work)
        self.num_held += 1
        try:
            return await asyncio.wrap_future(future)
        finally:
            if future.done():
                self.num_held -= 1
            else:
                future.add_done_callback(lambda done: self._release_later(loop, done))

    def close(self) -> None:
        """Drop what waits; what runs ends by itself. May be called twice."""
        for threads in (self._short, self._long):
            threads.shutdown(wait=False, cancel_futures=True)

    def _release_later(self, loop: asyncio.AbstractEventLoop, done: Future[_Result]) -> None:
        del done
        # The loop may be closed by now; then nobody counts any more.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(self._release)

    def _release(self) -> None:
        self.num_held -= 1
