"""Programs of others that tests run: where `make setup-clients` puts them, and how they are started."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from support.project import ROOT

CLIENTS = ROOT / "tests" / "clients"
NODE_FOLDER = CLIENTS / "node"
PROGRAMS = ROOT / ".venv.clients" / "bin"
_REMEDY = "run 'make setup-clients'"


def run_node(script: str, *arguments: str, timeout_s: float = 120) -> Any:
    """Run a script of tests/clients/node, and return the JSON that it prints."""
    node = shutil.which("node")
    assert node, (
        f"node is not installed: install Node.js 20 or later (Debian: apt-get install nodejs npm), then {_REMEDY}"
    )
    assert (NODE_FOLDER / "node_modules").is_dir(), f"the npm packages are not installed: {_REMEDY}"
    done = run([node, script, *arguments], cwd=NODE_FOLDER, timeout_s=timeout_s)
    return json.loads(done)


def run_program(name: str, *arguments: str, cwd: Path, timeout_s: float, **env: str) -> str:
    """Run a program of the clients' own environment, without network beyond this machine, and return what it prints."""
    program = PROGRAMS / name
    assert program.is_file(), f"{name} is not installed: {_REMEDY}"
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    return run([str(program), *arguments], cwd=cwd, timeout_s=timeout_s, **offline, **env)


def run(command: list[str], *, cwd: Path, timeout_s: float, **env: str) -> str:
    """Run a command; fail with everything that it said when it does not end well."""
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, timeout=timeout_s, check=False
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}\n{done.stdout[-8000:]}\n{done.stderr[-4000:]}"
    return done.stdout
