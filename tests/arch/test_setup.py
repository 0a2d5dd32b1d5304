"""The set-up asks for what it cannot install before it installs anything, and says what it found."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from support.project import ROOT, read

MAKEFILE = read(ROOT / "Makefile")


def check_node(folder, **programs):
    """Run `make check-node` where only these programs and a shell are found; return its exit code and its words."""
    for name, says in programs.items():
        file = folder / name
        file.write_text(f"#!/bin/sh\necho {says}\n", encoding="utf-8")
        file.chmod(0o755)
    make = shutil.which("make")
    assert make is not None
    done = subprocess.run(
        [make, "-s", "-C", str(ROOT), "check-node"],
        env={**os.environ, "PATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("version", ["v20.0.0", "v22.11.0"])
def test_node_of_20_and_later_will_do(tmp_path, version):
    assert check_node(tmp_path, node=version, npm="10") == (0, "")


@pytest.mark.parametrize(
    ("programs", "found"),
    [
        ({"node": "v18.19.0", "npm": "9"}, "node v18.19.0"),
        ({"node": "v9.0.0", "npm": "9"}, "node v9.0.0"),
        ({"node": "v20.1.0"}, "npm none"),
        ({"node": "nonsense", "npm": "9"}, "node nonsense"),
        ({}, "node none, npm none"),
    ],
)
def test_an_older_node_or_none_is_named(tmp_path, programs, found):
    code, said = check_node(tmp_path, **programs)
    assert code != 0
    assert found in said
    assert "need Node.js 20 or later" in said


def test_checks_come_before_what_is_installed():
    for target, checks in (("test", ["check-browser", "check-node"]), ("setup-clients", ["check-node"])):
        needs = next(line for line in MAKEFILE.splitlines() if line.startswith(f"{target}:")).split()[1:]
        assert needs[: len(checks)] == checks


def test_continuous_integration_brings_what_the_checks_ask_for():
    text = read(ROOT / ".ci" / "run")
    assert {"chromium", "nodejs", "npm"} <= set(text.replace("(", " ").replace(")", " ").split())


def test_every_target_for_a_user_is_in_the_help():
    targets = {
        line.split(":")[0] for line in MAKEFILE.splitlines() if line[:1].isalpha() and line.split(":")[0].isascii()
    }
    shown = {line.split("'make ")[1].split()[0] for line in MAKEFILE.splitlines() if "@echo 'make " in line}
    phony = set(next(line for line in MAKEFILE.splitlines() if line.startswith(".PHONY:")).split()[1:])
    assert phony <= targets
    assert phony - {"help", "check-browser", "check-node"} == shown
