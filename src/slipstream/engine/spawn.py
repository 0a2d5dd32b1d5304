"""Start an engine: in a process of its own, or in this one. The torch-free side of the process boundary.

The modules that need torch are named by strings here and nowhere else, so that a front end never imports them.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from slipstream.engine.interface import SyncEngine
from slipstream.wire.messages import Progress

ENGINE_MODULE = "slipstream.engine.main"
INLINE_MODULE = "slipstream.engine.inline"

_WATCH_MODULE = "slipstream.engine.watch"
_MAX_ADDRESS_CHARS = 100
_CLOSE_POLL_S = 0.02


class EngineProcess:
    """A started engine process, and everything that has to go with it.

    It ends when `close` is called, when this object is collected, when the interpreter exits, and (see watch) when
    this process dies in any other way.

    Args:
        popen: the process; leader of a group of its own, its standard input a pipe that only we hold.
        folder: a private folder with its configuration and its socket.
        address: where it connects to.
        title: what it is, for messages.
    """

    def __init__(
        self, popen: subprocess.Popen[bytes], folder: Path, address: str, title: str = "the engine process"
    ) -> None:
        self._popen = popen
        self._title = title
        self.folder = folder
        self.address = address
        self._reap = weakref.finalize(self, _reap, popen, folder)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._popen.pid

    def exit_code(self) -> int | None:
        """Return the exit code, negative for a signal, or None while it runs."""
        return _collect_exit(self._popen)

    def describe_exit(self) -> str:
        """Return how the process ended, in words."""
        code = self.exit_code()
        if code is None:
            return f"{self._title} {self.pid} is running"
        if code < 0:
            with contextlib.suppress(ValueError):
                return f"{self._title} {self.pid} was killed by {signal.Signals(-code).name}"
        return f"{self._title} {self.pid} ended with exit code {code}; its log says why"

    def close(self, grace_s: float = 5.0) -> None:
        """End the process group: give it `grace_s` seconds to end by itself, then kill it. May be called twice.

        Args:
            grace_s: seconds to wait before killing.
        """
        deadline = time.monotonic() + grace_s
        while self.exit_code() is None and time.monotonic() < deadline:
            time.sleep(_CLOSE_POLL_S)
        self._reap()


def start_process(
    config: msgspec.Struct, *, module: str = ENGINE_MODULE, title: str = "the engine process"
) -> EngineProcess:
    """Start an engine process; it connects a PAIR socket to the returned object's address.

    Args:
        config: the EngineConfig; handed over as JSON in a private file.
        module: what to run as `python -m MODULE --config FILE --address ADDRESS`.
        title: what it is, for messages.
    """
    folder = _private_folder()
    try:
        file = folder / "config.json"
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as handle:
            handle.write(msgspec.json.encode(config))
        address = f"ipc://{folder}/engine"
        command = [sys.executable, "-m", _WATCH_MODULE, str(folder), module, "--config", str(file)]
        command += ["--address", address]
        popen = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return EngineProcess(popen, folder, address, title)


def start_inline(config: msgspec.Struct, on_progress: Callable[[Progress], None] | None = None) -> SyncEngine:
    """Build an engine in this process; this is what imports torch.

    Args:
        config: the EngineConfig.
        on_progress: told of loading and warm-up.
    """
    inline: Any = importlib.import_module(INLINE_MODULE)
    return inline.create(config, on_progress or _ignore)


def _ignore(progress: Progress) -> None:
    del progress


def _private_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="slipstream-"))
    if len(str(folder)) < _MAX_ADDRESS_CHARS - len("ipc:///engine"):
        return folder
    folder.rmdir()
    # The path of a local socket has a fixed, short length in the system's interface.
    return Path(tempfile.mkdtemp(prefix="slipstream-", dir="/tmp"))


def _collect_exit(popen: subprocess.Popen[bytes]) -> int | None:
    """Return the exit code; the rest of its group is killed before the group's id can belong to anybody else."""
    if popen.returncode is None:
        with contextlib.suppress(ChildProcessError):
            if os.waitid(os.P_PID, popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                return None
            _kill_group(popen.pid)
        popen.wait()
    return popen.returncode


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _reap(popen: subprocess.Popen[bytes], folder: Path) -> None:
    if popen.stdin is not None:
        popen.stdin.close()
    if popen.returncode is None:
        _kill_group(popen.pid)
        popen.wait()
    shutil.rmtree(folder, ignore_errors=True)
