"""Sizes stay readable. Exceptions are named, with a reason, in sizes_exceptions.toml, and must still be needed."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from support.project import PACKAGE, exceptions, python_tests, read, relative, source_files, text_files

MAX_MODULE_LINES = 400
MAX_TEST_LINES = 500
MAX_FUNCTION_LINES = 80
MAX_PARAMETERS = 9
MAX_PUBLIC_METHODS = 15
MAX_FILES_IN_FOLDER = 14
MAX_NESTING = 4
Function = ast.FunctionDef | ast.AsyncFunctionDef
NESTING = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match)


def allowed_size(kind: str, where: str, limit: int) -> int:
    for entry in exceptions("sizes_exceptions.toml").get(kind, []):
        if entry["where"] == where:
            assert len(entry["reason"]) > 20, f"{where}: an exception needs a reason"
            return int(entry["limit"])
    return limit


def too_large(kind: str, sizes: dict[str, int], limit: int) -> list[str]:
    return [
        f"{where}: {size} > {allowed_size(kind, where, limit)}"
        for where, size in sizes.items()
        if size > allowed_size(kind, where, limit)
    ]


def functions() -> Iterator[tuple[str, Function]]:
    for file in source_files():
        for node in ast.walk(ast.parse(read(file))):
            if isinstance(node, Function):
                yield f"{relative(file)}::{node.name}", node


def parameters(node: Function) -> int:
    names = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return len([name for name in names if name not in {"self", "cls"}])


def depth(node: ast.AST) -> int:
    """Levels of control flow below a node; an elif is a sibling of its if."""
    deepest = 0
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, Function | ast.ClassDef | ast.Lambda):
                continue
            is_elif = isinstance(node, ast.If) and name == "orelse" and isinstance(child, ast.If)
            own = 1 if isinstance(child, NESTING) and not is_elif else 0
            deepest = max(deepest, own + depth(child))
    return deepest


def module_sizes() -> dict[str, int]:
    return {relative(file): len(read(file).splitlines()) for file in source_files()}


def function_sizes() -> dict[str, int]:
    return {where: (node.end_lineno or node.lineno) - node.lineno + 1 for where, node in functions()}


def parameter_counts() -> dict[str, int]:
    return {where: parameters(node) for where, node in functions() if "/kernels/" not in where}


def test_modules_are_short():
    assert too_large("module", module_sizes(), MAX_MODULE_LINES) == []


def test_test_modules_are_short():
    sizes = {relative(file): len(read(file).splitlines()) for file in python_tests()}
    assert too_large("test_module", sizes, MAX_TEST_LINES) == []


def test_other_python_files_are_short():
    others = [f for f in text_files() if f.suffix == ".py" and f not in {*source_files(), *python_tests()}]
    assert too_large("module", {relative(f): len(read(f).splitlines()) for f in others}, MAX_TEST_LINES) == []


def test_functions_are_short():
    assert too_large("function", function_sizes(), MAX_FUNCTION_LINES) == []


def test_functions_take_few_parameters():
    assert too_large("parameters", parameter_counts(), MAX_PARAMETERS) == []


def test_control_flow_is_shallow():
    assert too_large("nesting", {where: depth(node) for where, node in functions()}, MAX_NESTING) == []


def test_classes_have_few_public_methods():
    sizes: dict[str, int] = {}
    for file in source_files():
        for node in ast.walk(ast.parse(read(file))):
            if isinstance(node, ast.ClassDef):
                public = [m for m in node.body if isinstance(m, Function) and not m.name.startswith("_")]
                sizes[f"{relative(file)}::{node.name}"] = len(public)
    assert too_large("methods", sizes, MAX_PUBLIC_METHODS) == []


def test_folders_have_few_files():
    counts = Counter(relative(file.parent) for file in source_files() if file.name != "__init__.py")
    assert too_large("folder", dict(counts), MAX_FILES_IN_FOLDER) == []


def test_exceptions_are_still_needed():
    sizes = {"module": module_sizes(), "function": function_sizes(), "parameters": parameter_counts()}
    limits = {"module": MAX_MODULE_LINES, "function": MAX_FUNCTION_LINES, "parameters": MAX_PARAMETERS}
    stale = [
        entry["where"]
        for kind, table in sizes.items()
        for entry in exceptions("sizes_exceptions.toml").get(kind, [])
        if table.get(entry["where"], 0) <= limits[kind]
    ]
    assert stale == []


def test_a_long_function_would_be_found():
    node = ast.parse("def f(a, b):\n    if a:\n        for x in b:\n            while x:\n                pass\n").body[
        0
    ]
    assert isinstance(node, Function)
    assert depth(node) == 3
    assert parameters(node) == 2
    assert too_large("module", {"some/where.py": MAX_MODULE_LINES + 1}, MAX_MODULE_LINES) != []


def test_no_room_is_a_drawer():
    drawers = {"util", "utils", "helper", "helpers", "misc", "common", "shared"}
    assert [
        relative(file) for file in source_files() if drawers & set(file.relative_to(PACKAGE).with_suffix("").parts)
    ] == []
