"""A watched process ends with its parent, by the pipe or by the parent's id."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support.processes import is_alive, python_path, wait_until


def start(code: str, **options) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": python_path()}
    return subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, **options
    )


WATCHED = (
    "from slipstream.engine.watch import watch_parent; import time; watch_parent({folder!r}); print('up', flush=True);"
)


def watched(folder: Path) -> str:
    """Return a program that is watched and sleeps."""
    folder.mkdir()
    (folder / "secret").write_text("x")
    return WATCHED.format(folder=str(folder)) + "time.sleep(60)"


def test_the_end_of_the_pipe_ends_the_process(tmp_path):
    with start(watched(tmp_path / "private")) as process:
        assert process.stdout.readline() == b"up\n"
        assert process.poll() is None
        process.stdin.close()
        assert process.wait(5) == 1
    assert not (tmp_path / "private").exists()


def test_a_pipe_that_somebody_else_holds_is_not_needed(tmp_path):
    """The parent dies, but its pipe end lives on in another process: the parent's id tells."""
    code = (
        "import os, subprocess, sys; read, write = os.pipe();"
        f"child = subprocess.Popen([sys.executable, '-c', {watched(tmp_path / 'private')!r}], stdin=read,"
        " stdout=subprocess.PIPE); child.stdout.readline(); os.close(read);"
        "os.set_inheritable(write, True); subprocess.Popen(['sleep', '8'], pass_fds=(write,),"
        " stdout=subprocess.DEVNULL); print(child.pid, flush=True); os._exit(0)"
    )
    with start(code) as parent:
        child = int(parent.stdout.readline())
        parent.wait(5)
        assert wait_until(lambda: not is_alive(child), timeout_s=4)
    assert not (tmp_path / "private").exists()


def test_the_module_runs_as_the_main_program_with_its_arguments(tmp_path):
    (tmp_path / "told.py").write_text("import sys; print(__name__, sys.argv[1:])")
    environment = {**os.environ, "PYTHONPATH": f"{python_path()}{os.pathsep}{tmp_path}"}
    command = [sys.executable, "-m", "slipstream.engine.watch", str(tmp_path / "x"), "told", "--config", "x"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout.read() == b"__main__ ['--config', 'x']\n"
        assert process.wait(5) == 0
