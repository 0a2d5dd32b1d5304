"""Every module says what it is for, speaks through logs and errors, and names no machine."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

from support.project import PACKAGE, read, relative, source_files, text_files

# Written in pieces, so that this file does not contain what it looks for.
ROOTS = ["wo" + "rk", "ro" + "ot", "ho" + "me", "Us" + "ers"]
HOSTS = ["py" + r"pi\.(?:org|io)", "python" + r"hosted\.", "npm" + r"js\.(?:org|com)", "download" + r"\.pytorch\."]
MACHINE_PATHS = re.compile(r"(?<![\w.])/(?:" + "|".join(ROOTS) + r")/\w")
REGISTRY_HOSTS = re.compile("|".join(HOSTS))
UNFINISHED = re.compile(r"\b(?:" + "|".join(["TO" + "DO", "FIX" + "ME", "X" + "XX"]) + r")\b")


def test_modules_have_docstrings():
    assert [relative(f) for f in source_files() if not ast.get_docstring(ast.parse(read(f)))] == []


def test_only_the_command_line_prints():
    talkers = []
    for file in source_files():
        if file.is_relative_to(PACKAGE / "cli"):
            continue
        for node in ast.walk(ast.parse(read(file))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
                talkers.append(f"{relative(file)}:{node.lineno}")
    assert talkers == []


def test_environment_is_read_in_one_place():
    readers = [relative(f) for f in source_files() if re.search(r"\bos\.(?:environ|getenv)\b", read(f))]
    assert [r for r in readers if "/base/" not in r and "/cli/" not in r] == []


def test_torch_is_imported_by_name_only_where_the_house_rule_says():
    """The import contract cannot see an import by name; the two modules that do it are named in the rule."""
    by_name = re.compile(r"import_module\(\s*[\"'](?:torch|transformers|triton)\b")
    found = {relative(file) for file in source_files() if by_name.search(read(file))}
    assert found == {"src/slipstream/cli/bench/peer.py", "src/slipstream/cli/doctor.py"}
    for rule in ("AGENTS.md", "docs/adr/0002-torch-free-control-plane.md"):
        text = (PACKAGE.parents[1] / rule).read_text(encoding="utf-8")
        assert [name for name in ("cli/bench/peer", "cli/doctor", "engine/spawn") if f"`{name}`" not in text] == []


def test_every_part_of_the_engine_that_a_front_end_needs_is_kept_from_torch():
    contracts = tomllib.loads((PACKAGE.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    contract = next(
        c for c in contracts["importlinter"]["contracts"] if c["name"] == "Control plane never reaches torch"
    )
    needed = {"slipstream.engine.watch"}  # started by module name, before torch is loaded
    for file in source_files():
        if file.relative_to(PACKAGE).parts[0] in ("frontend", "server", "harness"):
            needed |= set(re.findall(r"from (slipstream\.engine\.\w+) import", read(file)))
    assert needed - set(contract["source_modules"]) == set()


def find(pattern: re.Pattern[str], files: tuple[Path, ...]) -> list[str]:
    return [
        f"{relative(file)}:{number}: {match[0]}"
        for file in files
        for number, line in enumerate(read(file).splitlines(), 1)
        for match in pattern.finditer(line)
    ]


@pytest.mark.parametrize("pattern", [MACHINE_PATHS, REGISTRY_HOSTS, UNFINISHED], ids=["paths", "hosts", "unfinished"])
def python_tests_name_no_machine_and_leave_nothing_open(pattern):
    assert find(pattern, text_files()) == []


def test_the_patterns_find_what_they_are_for():
    assert MACHINE_PATHS.search("see /" + "work/x")
    assert not MACHINE_PATHS.search("a/" + "work/x")
    assert REGISTRY_HOSTS.search("https://" + "pypi" + ".org/simple")
    assert UNFINISHED.search("# TO" + "DO later")


def test_dataclasses_of_tensors_say_their_axes():
    """A field annotated Tensor in a class body carries a bracket comment on its line."""
    bare = []
    for file in source_files():
        lines = read(file).splitlines()
        for node in ast.walk(ast.parse(read(file))):
            if isinstance(node, ast.ClassDef):
                for field in node.body:
                    if not isinstance(field, ast.AnnAssign) or "Tensor" not in ast.unparse(field.annotation):
                        continue
                    written = " ".join(lines[field.lineno - 1 : field.end_lineno])
                    if not re.search(r"#.*(\[|same shape|as above)", written):
                        bare.append(f"{relative(file)}:{field.lineno}")
    assert bare == []
