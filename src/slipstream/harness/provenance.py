"""Where a figure comes from: revision, versions, hardware, threads, command.

A result without these is an anecdote. Not here: anything about people or paths of the machine.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import msgspec

from slipstream.base.version import VERSION

PACKAGES = ("torch", "numpy", "tokenizers", "transformers")
SECRET_OPTIONS = ("--api-key",)
RESULTS_FOLDER = "benchmarks/results"
HIDDEN = "***"
_URL_LOGIN = re.compile(r"^(\w+://)[^/@]*@")
_GIT_TIMEOUT_S = 5


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """Facts that a reader needs to repeat a measurement.

    Args:
        revision: commit of the source, `+changes` appended when anything in the work tree differs from it, new files
            included; `unknown` outside git.
        versions: (package, version) of this package and what is installed of `PACKAGES`.
        num_cores: logical processors this process may use.
        num_threads: threads the measured code was told to use.
        memory_bytes: physical memory, 0 when unknown.
        command: what was typed, without keys and with the names of absolute paths only.
    """

    revision: str
    date: str
    python: str
    versions: tuple[tuple[str, str], ...]
    system: str
    processor: str
    num_cores: int
    num_threads: int
    memory_bytes: int
    command: str


def collect(num_threads: int, argv: Sequence[str] | None = None) -> Provenance:
    """Return the facts of this process, now."""
    return Provenance(
        revision=read_revision(Path(__file__).resolve().parents[1]),
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        python=platform.python_version(),
        versions=(("slipstream", VERSION), *((name, v) for name in PACKAGES if (v := find_version(name)) is not None)),
        system=f"{platform.system()} {platform.machine()}",
        processor=read_processor(),
        num_cores=count_cores(),
        num_threads=num_threads,
        memory_bytes=read_memory_bytes(),
        command=describe_command(sys.argv if argv is None else argv),
    )


def describe_command(argv: Sequence[str]) -> str:
    """Return a command line that may be published: secrets hidden, absolute paths reduced to their last name.

    Args:
        argv: the program and its arguments. The value of a secret option may follow it or be joined by `=`.
    """
    shown: list[str] = []
    is_secret = False
    for index, word in enumerate(argv):
        option, equals, value = word.partition("=")
        if is_secret:
            shown.append(HIDDEN)
        elif equals and option.startswith("--"):
            shown.append(f"{option}={HIDDEN if option in SECRET_OPTIONS else _publishable(value)}")
        else:
            shown.append(Path(word).name if not index else _publishable(word))
        is_secret = not is_secret and word in SECRET_OPTIONS
    return shlex.join(shown)


def _publishable(word: str) -> str:
    path = Path(word)
    if path.is_absolute() or word.startswith("~") or ".." in path.parts:
        return path.name
    return _URL_LOGIN.sub(rf"\g<1>{HIDDEN}@", word)


def find_version(package: str) -> str | None:
    """Return the installed version of a package, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def read_revision(folder: Path) -> str:
    """Return the commit that holds `folder`, or `unknown`; a work tree that cannot be compared counts as changed.

    What earlier measurements wrote is no change: a run would otherwise mark the next one.
    """
    commit = _git(folder, "rev-parse", "--short=12", "HEAD")
    if commit is None:
        return "unknown"
    tree = (":(top)", f":(top,exclude){RESULTS_FOLDER}")
    is_clean = _git(folder, "status", "--porcelain", "--untracked-files=all", "--", *tree) == ""
    return commit if is_clean else commit + "+changes"


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=_GIT_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def count_cores() -> int:
    """Return the number of logical processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def read_processor() -> str:
    """Return the processor's name, or its architecture where the system does not tell."""
    table = Path("/proc/cpuinfo")
    if table.is_file():
        for line in table.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def read_memory_bytes() -> int:
    """Return the physical memory in bytes, or 0 where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 0
