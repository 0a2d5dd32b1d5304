"""An engine process is private, reports its end, and leaves nothing behind, however either side dies."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import types
from pathlib import Path

import msgspec
import pytest

from slipstream.engine import spawn
from slipstream.engine.spawn import start_inline, start_process
from support.fake_engine import FakeConfig, FakeModelSection
from support.processes import is_alive, python_path, wait_until

FAKE = "support.fake_engine"


@pytest.fixture(autouse=True)
def _children_find_the_fake(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", python_path())


def config(**fields) -> FakeConfig:
    return FakeConfig(model=FakeModelSection(path="nowhere"), **fields)


def folder_of(process) -> Path:
    return Path(process.address.removeprefix("ipc://")).parent


def test_the_configuration_is_handed_over_in_a_private_folder():
    process = start_process(config(load_s=60), module=FAKE)
    folder = folder_of(process)
    try:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        file = folder / "config.json"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert msgspec.json.decode(file.read_bytes(), type=FakeConfig) == config(load_s=60)
        assert process.exit_code() is None
        assert "running" in process.describe_exit()
    finally:
        process.close(0)
    assert not folder.exists()
    assert not is_alive(process.pid)


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [({"exit_code": 3}, 3, "exit code 3"), ({"load_s": 60}, -signal.SIGKILL, "killed by SIGKILL")],
)
def test_the_end_is_described(fields, code, words):
    process = start_process(config(**fields), module=FAKE)
    if code < 0:
        os.kill(process.pid, signal.SIGKILL)
    assert wait_until(lambda: process.exit_code() is not None)
    assert process.exit_code() == code
    assert words in process.describe_exit()
    process.close(0)


@pytest.mark.parametrize("dies_first", [True, False])
def test_children_of_the_engine_end_with_it(tmp_path, dies_first):
    child_file = tmp_path / "child"
    process = start_process(config(load_s=60, child_file=str(child_file)), module=FAKE)
    assert wait_until(lambda: child_file.exists() and child_file.read_text() != "")
    child = int(child_file.read_text())
    assert is_alive(child)
    if dies_first:
        os.kill(process.pid, signal.SIGKILL)
        assert wait_until(lambda: process.exit_code() is not None)
    else:
        process.close(0)
    assert wait_until(lambda: not is_alive(child))
    process.close(0)


def test_close_may_be_called_twice_and_kills_what_does_not_end():
    process = start_process(config(load_s=60), module=FAKE)
    process.close(0.05)
    process.close(0.05)
    assert not is_alive(process.pid)


def test_a_forgotten_process_is_ended_when_it_is_collected():
    process = start_process(config(load_s=60), module=FAKE)
    pid = process.pid
    del process
    assert wait_until(lambda: not is_alive(pid))


ORPHAN = """
import sys, time
from slipstream.engine.spawn import start_process
from support.fake_engine import FakeConfig, FakeModelSection
config = FakeConfig(model=FakeModelSection(path="x"), load_s=60, child_file=sys.argv[1])
process = start_process(config, module={fake!r})
print(process.pid, process.address, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_front_end_leaves_no_orphan(tmp_path, number):
    child_file = tmp_path / "child"
    parent = subprocess.Popen([sys.executable, "-c", ORPHAN.format(fake=FAKE), str(child_file)], stdout=subprocess.PIPE)
    with parent:
        words = parent.stdout.readline().decode().split()
        engine, folder = int(words[0]), Path(words[1].removeprefix("ipc://")).parent
        assert wait_until(lambda: child_file.exists() and child_file.read_text() != "")
        child = int(child_file.read_text())
        assert is_alive(engine)
        assert is_alive(child)
        assert folder.exists()
        parent.send_signal(number)
    assert wait_until(lambda: not is_alive(engine) and not is_alive(child), timeout_s=5)
    assert not folder.exists()


def test_a_long_temporary_path_still_gives_a_usable_address(tmp_path, monkeypatch):
    long = tmp_path / ("x" * 120)
    long.mkdir()
    monkeypatch.setattr(spawn.tempfile, "tempdir", str(long))
    process = start_process(config(exit_code=0), module=FAKE)
    assert len(process.address) < 107
    process.close()
    assert list(long.iterdir()) == []


def test_an_inline_engine_is_found_by_name(monkeypatch):
    seen = {}

    def create(config, on_progress):
        seen["config"] = config
        on_progress(None)
        return "engine"

    module = types.SimpleNamespace(create=create)
    monkeypatch.setitem(sys.modules, spawn.INLINE_MODULE, module)
    told = []
    assert start_inline(config(), told.append) == "engine"
    assert seen["config"] == config()
    assert told == [None]
    assert start_inline(config()) == "engine"


def test_importing_the_front_end_reaches_no_torch():
    probe = "import sys, slipstream.server.serve, slipstream.frontend.llm; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0
