"""A program on a terminal of its own: what it writes can be waited for, and keys reach it as from a keyboard."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping, Sequence

CTRL_C = "\x03"
CTRL_D = "\x04"
_WINDOW = struct.pack("HHHH", 40, 160, 0, 0)


class TerminalProgram:
    """A running program and everything that it has written so far.

    Args:
        process: its process.
        keyboard: file descriptor of the other end of its terminal.
    """

    def __init__(self, process: subprocess.Popen[bytes], keyboard: int) -> None:
        self.process = process
        self.written = ""
        self._keyboard = keyboard
        self._seen = 0

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._keyboard, keys.encode())

    def wait_for(self, pattern: str, timeout_s: float = 60) -> str:
        """Wait for what was not waited for before, and return everything up to its end."""
        deadline = time.monotonic() + timeout_s
        while True:
            found = re.compile(pattern, re.DOTALL).search(self.written, self._seen)
            if found:
                start, self._seen = self._seen, found.end()
                return self.written[start : self._seen]
            left = deadline - time.monotonic()
            assert left > 0, f"{pattern!r} did not come: {self.written[self._seen :]!r}"
            assert self._read(left), f"it ended before {pattern!r} came: {self.written[self._seen :]!r}"

    def wait_end(self, keys: str = "", timeout_s: float = 30) -> int:
        """Return the exit code.

        Args:
            keys: pressed until it reacts: readline misses a signal that comes between its prompt and its waiting.
            timeout_s: longest wait.
        """
        deadline = time.monotonic() + timeout_s
        before = len(self.written)
        with contextlib.suppress(OSError):
            self.type(keys)
            while self._read(2):
                assert time.monotonic() < deadline, f"it did not end: {self.written[self._seen :]!r}"
                if len(self.written) == before:
                    self.type(keys)
        return self.process.wait(timeout_s)

    def _read(self, timeout_s: float) -> bool:
        if not select.select([self._keyboard], [], [], timeout_s)[0]:
            return True
        try:
            data = os.read(self._keyboard, 65536)
        except OSError:
            # The last program on a terminal has closed it.
            return False
        self.written += data.decode("utf-8", errors="replace")
        return bool(data)


@contextlib.contextmanager
def on_terminal(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Iterator[TerminalProgram]:
    """Start a program on a terminal; end it afterwards.

    Args:
        command: program and arguments.
        environment: added to this process's.
    """
    keyboard, screen = pty.openpty()
    fcntl.ioctl(screen, termios.TIOCSWINSZ, _WINDOW)
    plain = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    process = subprocess.Popen(
        command,
        stdin=screen,
        stdout=screen,
        stderr=screen,
        start_new_session=True,
        # The terminal belongs to the new session, so that Ctrl-C is a signal to it.
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        env={**plain, "TERM": "xterm-256color", "OMP_NUM_THREADS": "1", **(environment or {})},
    )
    os.close(screen)
    try:
        yield TerminalProgram(process, keyboard)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        os.close(keyboard)
