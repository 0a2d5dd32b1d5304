"""An alarm that one thread can wait for and any other can sound; it has a file descriptor, for those who poll several.

It stays sounded until it is reset, so that nothing is missed between two looks.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import weakref


class Wake:
    """The alarm. Its pipe is closed with it, or when it is collected."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        for descriptor in (self._reader, self._writer):
            os.set_blocking(descriptor, False)
        self._lock = threading.Lock()
        self._close = weakref.finalize(self, _close, self._reader, self._writer)

    def fileno(self) -> int:
        """Return a descriptor that is readable while the alarm sounds."""
        return self._reader

    def sound(self) -> None:
        """Wake whoever waits, now or later. From any thread; nothing happens once it is closed."""
        with self._lock:
            # A full pipe sounds already.
            if self._close.alive:
                with contextlib.suppress(BlockingIOError):
                    os.write(self._writer, b"!")

    def reset(self) -> None:
        """Silence it."""
        with contextlib.suppress(BlockingIOError):
            while self._close.alive and os.read(self._reader, 4096):
                pass

    def wait(self, timeout_s: float) -> bool:
        """Wait for it; return whether it sounds.

        Args:
            timeout_s: longest wait, in seconds.
        """
        if not self._close.alive:
            return False
        # Not `select`, which takes no descriptor from 1024 on: a program around the engine may hold many files.
        poll = select.poll()
        poll.register(self._reader, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))

    def close(self) -> None:
        """Close the pipe. May be called twice."""
        with self._lock:
            self._close()


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
