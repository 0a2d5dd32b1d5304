"""Run an engine module under the eyes of its parent: `python -m slipstream.engine.watch FOLDER MODULE ARGUMENTS…`.

The parent holds the other end of standard input. When that end closes, by whatever death of the parent, this process
removes the private folder that the parent made for it and ends at once with its group, so that nobody is left holding
the device.
"""

from __future__ import annotations

import os
import runpy
import shutil
import signal
import sys
import threading
import time

PARENT_POLL_S = 0.5
"""How often the parent's process id is compared; catches a parent whose pipe end somebody else inherited."""


def watch_parent(folder: str) -> None:
    """End this process, with its group if it leads one, once the parent is gone. Returns at once.

    Args:
        folder: removed before the end.
    """
    parent = os.getppid()
    threading.Thread(target=_wait_for_end_of_input, args=(folder,), name="watch-parent-pipe", daemon=True).start()
    threading.Thread(target=_wait_for_new_parent, args=(folder, parent), name="watch-parent-id", daemon=True).start()


def _wait_for_end_of_input(folder: str) -> None:
    while os.read(0, 4096):
        pass
    _end(folder)


def _wait_for_new_parent(folder: str, parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_POLL_S)
    _end(folder)


def _end(folder: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def main(arguments: list[str]) -> None:
    """Watch the parent and run a module as the main program.

    Args:
        arguments: the private folder, the module's name, and its arguments.
    """
    folder, *sys.argv = arguments
    watch_parent(folder)
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
