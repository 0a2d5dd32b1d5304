"""Every module has a test of its own, at the mirrored place under tests/pure or tests/cpu, or a stated reason.

src/slipstream/a/b.py is tested by tests/{pure,cpu}/a/test_b.py. An operation of `kernels` is a folder (contract,
reference, cases); its one test is tests/cpu/kernels/<room>/test_<operation>.py.
"""

from __future__ import annotations

import ast

from support.project import PACKAGE, TESTS, exceptions, python_tests, read, relative, source_files

KINDS = ("pure", "cpu")


def modules():
    return [file for file in source_files() if file.name != "__init__.py"]


def is_operation(folder):
    return folder.is_relative_to(PACKAGE / "kernels") and (folder / "contract.py").is_file()


def twins(file):
    """Places where the test of a module may lie."""
    if is_operation(file.parent):
        place = file.parent.relative_to(PACKAGE)
        return [TESTS / kind / place.parent / f"test_{place.name}.py" for kind in KINDS]
    place = file.relative_to(PACKAGE)
    return [TESTS / kind / place.parent / f"test_{place.stem}.py" for kind in KINDS]


def reasons():
    return {entry["module"]: entry["reason"] for entry in exceptions("twins_exceptions.toml").get("module", [])}


def test_every_module_has_a_test():
    excused = reasons()
    missing = [relative(f) for f in modules() if not any(twin.is_file() for twin in twins(f))]
    assert [name for name in missing if name.removeprefix("src/slipstream/") not in excused] == []


def test_exceptions_have_reasons_and_are_still_needed():
    for module, reason in reasons().items():
        file = PACKAGE / module
        assert file.is_file(), f"{module} does not exist"
        assert len(reason) > 20, f"{module}: give a reason"
        assert not any(twin.is_file() for twin in twins(file)), f"{module} has a test: take it off the list"


def test_packages_hold_no_code():
    """`__init__` files are documentation, except those that are listed."""
    excused = {entry["module"] for entry in exceptions("twins_exceptions.toml").get("package", [])}
    full = []
    for file in source_files():
        if file.name == "__init__.py":
            body = ast.parse(read(file)).body
            place = file.relative_to(PACKAGE).as_posix()
            if len(body) > 1 and place not in excused:
                full.append(place)
    assert full == []


def test_tests_are_collected_and_never_switched_off():
    """Every test file holds a test; nothing is skipped or expected to fail."""
    empty, silenced = [], []
    for file in python_tests():
        if file.is_relative_to(TESTS / "support") or file.name == "conftest.py":
            continue
        names = {node.name for node in ast.walk(ast.parse(read(file))) if isinstance(node, ast.FunctionDef)}
        if not any(name.startswith("test_") for name in names):
            empty.append(relative(file))
        for word in ("pytest.skip(", "mark.skip", "mark.xfail", "importorskip"):
            if word in read(file) and file.name != "test_twins.py":
                silenced.append(f"{relative(file)}: {word}")
    assert empty == []
    assert silenced == []
