"""Look at processes and wait for things, without trusting a fixed sleep."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path


def python_path() -> str:
    """Return PYTHONPATH for a child that must import what this process can."""
    return os.pathsep.join(path for path in sys.path if path)


def is_alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def wait_until(condition: Callable[[], bool], timeout_s: float = 10.0) -> bool:
    """Return whether a condition became true in time."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.01)
    return condition()
