"""What the commands show: progress of loading and warm-up, tables, one-line errors.

Results go to standard output; progress and errors go to standard error, so that output can be piped.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from slipstream.wire.messages import Progress as StageProgress

ERROR_PREFIX = "slipstream: "


def hold_standard_streams() -> None:
    """Put the null device where standard input, output or error were closed.

    HAZARD: the next socket would get the number otherwise, and libraries that write to standard error would write
    into it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is taken: this one. Child processes need it as much.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


@contextmanager
def orderly_end() -> Iterator[None]:
    """Let SIGTERM and SIGHUP unwind the block, so that temporary folders go; a hang-up that is ignored stays so.

    The exit code is 128 and the signal's number, as shells have it.
    """

    def end(number: int, frame: FrameType | None) -> None:
        del frame
        raise SystemExit(128 + number)

    held = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    for number in held:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in held:
            signal.signal(number, signal.SIG_DFL)


class _PatientConsole(Console):
    """Falls silent when its reader has gone, and does not end the program: a server has more to do than to print."""

    def on_broken_pipe(self) -> None:
        """Print nothing more."""
        self.quiet = True


def make_error_console() -> Console:
    """Return the console on standard error."""
    return _PatientConsole(stderr=True, highlight=False, soft_wrap=True)


class ProgressDisplay:
    """Shows loading and warm-up: a bar per stage on a terminal, else one line when a stage begins.

    Use as a context manager; call it with each `wire.messages.Progress`.

    Args:
        console: where to show.
        is_quiet: show nothing.
    """

    def __init__(self, console: Console | None = None, *, is_quiet: bool = False) -> None:
        self._console = console or make_error_console()
        self._is_quiet = is_quiet
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._announced: set[str] = set()

    def __enter__(self) -> ProgressDisplay:
        if self._console.is_terminal and not self._is_quiet:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._bars = Progress(*columns, console=self._console, transient=True)
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Take the bars away. May be called twice."""
        if self._bars is not None:
            self._bars.stop()
            self._bars = None
            self._is_quiet = True

    def __call__(self, progress: StageProgress) -> None:
        """Show one report."""
        if self._is_quiet:
            return
        if self._bars is None:
            if progress.stage not in self._announced:
                self._announced.add(progress.stage)
                self._console.print(f"{progress.stage} ...", markup=False)
            return
        if progress.stage not in self._tasks:
            self._tasks[progress.stage] = self._bars.add_task(progress.stage, total=progress.total)
        self._bars.update(self._tasks[progress.stage], completed=progress.done, total=progress.total)


def show_error(message: str, console: Console | None = None) -> None:
    """Print an error as one line on standard error."""
    line = " ".join(message.split())
    (console or make_error_console()).print(ERROR_PREFIX + line, markup=False)


def format_bytes(count: int) -> str:
    """Return a byte count with a binary unit: 1536 -> `1.5 KiB`."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
