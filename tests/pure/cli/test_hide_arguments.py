"""A secret on the command line is not seen in lists of processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from slipstream.cli.hide_arguments import hide_arguments
from support.processes import python_path

PROGRAM = """
import sys
from pathlib import Path
from slipstream.cli.hide_arguments import hide_arguments
num = hide_arguments(sys.argv[1].split(","))
sys.stdout.write(str(num) + "|" + Path("/proc/self/cmdline").read_text().replace(chr(0), " "))
"""


def shown(secrets: str, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-c", PROGRAM, secrets, *arguments]
    text = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=60, env={"PYTHONPATH": python_path()}
    ).stdout
    number, _, line = text.partition("|")
    return int(number), line


def test_arguments_that_are_a_secret_become_asterisks() -> None:
    number, line = shown(
        "secr\u00e9t,other", "--api-key", "secr\u00e9t", "--api-key=other", "--host", "secr\u00e9t.org"
    )
    assert number == 2
    assert line.rstrip().endswith(f"--api-key {'*' * 7} --api-key=***** --host secr\u00e9t.org")


def test_an_empty_secret_and_one_that_is_not_there_change_nothing() -> None:
    number, line = shown(",absent", "--api-key", "word")
    assert number == 0
    assert line.rstrip().endswith("--api-key word")


def test_where_the_system_says_nothing_or_something_else_nothing_is_touched(tmp_path: Path) -> None:
    assert hide_arguments(["x"], tmp_path) == 0
    (tmp_path / "stat").write_text("1 (a) b) " + " ".join(["S", *["0"] * 60]))
    (tmp_path / "cmdline").write_bytes(b"x\0")
    assert hide_arguments(["x"], tmp_path) == 0
