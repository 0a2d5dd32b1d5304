"""Blot secrets out of what lists of processes show of this one. Linux only; elsewhere it does nothing.

The arguments of a process lie in its own memory, and the system reads them there each time somebody asks. For the
moment between start and here they can be seen: a file or the environment is the better place for a key.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from pathlib import Path

_PROCESS = Path("/proc/self")
_FIRST_ADDRESS_FIELD = 48
"""Field of /proc/PID/stat with the address of the first argument; the one behind it has that of their end."""


def hide_arguments(secrets: Iterable[str], process: Path = _PROCESS) -> int:
    """Overwrite secrets in this process's arguments.

    Args:
        secrets: what must not be shown.
        process: the system's folder about this process.

    Returns:
        How many places were overwritten.
    """
    try:
        fields = (process / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        shown = (process / "cmdline").read_bytes()
    except OSError:
        return 0
    # The part behind the name begins with field 3.
    first, last = (int(fields[_FIRST_ADDRESS_FIELD - 3 + place]) for place in range(2))
    # INVARIANT: only memory that holds exactly what the system shows is written to.
    if not first or last - first != len(shown) or ctypes.string_at(first, len(shown)) != shown:
        return 0
    words = {secret.encode("utf-8", "surrogateescape") for secret in secrets} - {b""}
    num_hidden = place = 0
    for argument in shown.split(b"\0"):
        for word in words:
            # Typed as an argument of its own, or behind the option's name and an equals sign.
            if argument == word or argument.endswith(b"=" + word):
                ctypes.memset(first + place + len(argument) - len(word), ord("*"), len(word))
                num_hidden += 1
        place += len(argument) + 1
    return num_hidden
