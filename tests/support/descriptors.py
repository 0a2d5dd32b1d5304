"""File descriptors with large numbers, as in a program that holds many files."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
from collections.abc import Iterator

FIRST_LARGE = 1024
"""What `select` takes no more."""


@contextlib.contextmanager
def many_open_files() -> Iterator[None]:
    """Take every descriptor below FIRST_LARGE, so that what is opened inside gets larger ones."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    room = 4 * FIRST_LARGE if limits[1] == resource.RLIM_INFINITY else min(4 * FIRST_LARGE, limits[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(room, limits[0]), limits[1]))
    taken = [os.open(os.devnull, os.O_RDONLY)]
    try:
        while taken[-1] < FIRST_LARGE:
            taken.append(fcntl.fcntl(taken[0], fcntl.F_DUPFD_CLOEXEC, 3))
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
