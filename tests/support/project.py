"""The project as files: where its parts are and how to read them. For tests that read the source."""

from __future__ import annotations

import importlib.util
import os
import sys
import tomllib
from functools import cache
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "slipstream"
TESTS = ROOT / "tests"
GENERATED = {"__pycache__", "build", "dist", "node_modules"}
TEXT_SUFFIXES = {"", ".py", ".md", ".toml", ".txt", ".cfg", ".json", ".jsonl", ".jinja", ".sh", ".yml", ".yaml"}


@cache
def source_files() -> tuple[Path, ...]:
    """Every Python file of the package."""
    return tuple(sorted(PACKAGE.rglob("*.py")))


@cache
def python_tests() -> tuple[Path, ...]:
    """Every Python file below tests/."""
    return tuple(sorted(TESTS.rglob("*.py")))


@cache
def text_files() -> tuple[Path, ...]:
    """Every text file that belongs to the project, tools' leftovers and hidden folders other than .ci excluded."""
    found: list[Path] = []
    for folder, subfolders, names in os.walk(ROOT):
        subfolders[:] = [
            name
            for name in subfolders
            if (not name.startswith(".") or name == ".ci") and name not in GENERATED and "egg-info" not in name
        ]
        found += [Path(folder, name) for name in names if Path(name).suffix in TEXT_SUFFIXES]
    return tuple(sorted(found))


@cache
def read(path: Path) -> str:
    """The text of a file."""
    return path.read_text(encoding="utf-8")


def relative(path: Path) -> str:
    """The path from the project's root, with forward slashes."""
    return path.relative_to(ROOT).as_posix()


def exceptions(name: str) -> dict[str, list[dict[str, str]]]:
    """A table of exceptions beside the architecture tests."""
    return tomllib.loads(read(TESTS / "arch" / name))


def load_tool(name: str) -> ModuleType:
    """A script of tools/, imported as a module."""
    full_name = f"slipstream_tool_{name}"
    if full_name in sys.modules:
        return sys.modules[full_name]
    spec = importlib.util.spec_from_file_location(full_name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[full_name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
