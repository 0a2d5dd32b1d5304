from __future__ import annotations

import ast
import io
import os
import signal
import subprocess
import sys

import pytest
from rich.console import Console

from slipstream.cli.console import ProgressDisplay, format_bytes, make_error_console, orderly_end, show_error
from slipstream.wire.messages import Progress
from support.processes import python_path


class ClosedPipe(io.StringIO):
    def write(self, text):
        raise BrokenPipeError


def test_the_error_console_falls_silent_when_its_reader_has_gone(monkeypatch):
    monkeypatch.setattr(sys, "stderr", ClosedPipe())
    console = make_error_console()
    console.print("nobody reads this")
    console.print("nor this")
    assert console.quiet


STREAMS = """
import os, subprocess, sys
from slipstream.cli.console import hold_standard_streams
before = [os.path.exists(f"/proc/self/fd/{n}") for n in range(3)]
hold_standard_streams()
hold_standard_streams()
after = [os.readlink(f"/proc/self/fd/{n}") for n in range(3)]
child = subprocess.call([sys.executable, "-c", "import os; [os.fstat(n) for n in range(3)]"])
open(sys.argv[1], "w").write(repr((before, after, child)))
"""


def test_standard_streams_that_were_closed_become_the_null_device(tmp_path):
    told = tmp_path / "told"
    shell = ["sh", "-c", 'exec "$@" >&- 2>&-', "sh", sys.executable, "-c", STREAMS, str(told)]
    subprocess.run(shell, check=True, timeout=60, stdin=subprocess.DEVNULL, env={"PYTHONPATH": python_path()})
    before, after, child = ast.literal_eval(told.read_text())
    assert before == [True, False, False]
    assert after == ["/dev/null"] * 3
    assert child == 0


def make_console(*, is_terminal):
    return Console(file=io.StringIO(), force_terminal=is_terminal, width=100, highlight=False, soft_wrap=True)


def run_stages(console, **options):
    with ProgressDisplay(console, **options) as display:
        for stage in ("loading weights", "warming up"):
            for done in range(4):
                display(Progress(stage=stage, done=done, total=3))
    return console.file.getvalue()


def test_a_pipe_gets_one_line_per_stage():
    assert run_stages(make_console(is_terminal=False)).splitlines() == ["loading weights ...", "warming up ..."]


def test_a_terminal_gets_bars():
    shown = run_stages(make_console(is_terminal=True))
    assert "loading weights" in shown
    assert "3/3" in shown


@pytest.mark.parametrize("is_terminal", [True, False])
def test_quiet_shows_nothing(is_terminal):
    assert run_stages(make_console(is_terminal=is_terminal), is_quiet=True) == ""


def test_errors_are_one_line_without_markup():
    console = make_console(is_terminal=False)
    show_error("tp=[bold]3\n  is not allowed", console)
    assert console.file.getvalue() == "slipstream: tp=[bold]3 is not allowed\n"


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (2**20, "1.0 MiB"), (3 * 2**30, "3.0 GiB"), (2**41, "2.0 TiB")],
)
def test_bytes_carry_a_unit(count, text):
    assert format_bytes(count) == text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_that_end_a_program_unwind_it_and_what_is_ignored_stays_so(number):
    cleaned = []

    def work():
        with orderly_end():
            try:
                os.kill(os.getpid(), number)
                # Handlers run between instructions of the main thread.
                signal.sigtimedwait([], 10)
            finally:
                cleaned.append(number)

    before = signal.getsignal(number)
    try:
        signal.signal(number, signal.SIG_DFL)
        with pytest.raises(SystemExit) as stopped:
            work()
        assert stopped.value.code == 128 + number
        assert cleaned == [number]
        assert signal.getsignal(number) is signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN)
        with orderly_end():
            os.kill(os.getpid(), number)
            assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, before)
