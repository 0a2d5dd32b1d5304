"""docs/faults.md: every known fault has a test that exists, or names the planned work that would bring it."""

from __future__ import annotations

import ast
import re

import pytest

from support.project import ROOT, read

NAMED_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
LABEL = re.compile(r"[SA-G]\d+")
REASONS = ("planned: ", "not here: ")


def fault_rows():
    lines = read(ROOT / "docs" / "faults.md").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return [row for row in cells if LABEL.fullmatch(row[0])]


def function_names(path):
    tree = ast.parse(read(path))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


ROWS = fault_rows()


def test_the_page_lists_faults_once():
    labels = [row[0] for row in ROWS]
    assert len(labels) > 90
    assert len(set(labels)) == len(labels)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_every_fault_is_answered(row):
    label, report, fault, answer = row
    assert report.startswith("https://") or (label[0] in "FG" and report == "no public link")
    assert len(fault) > 20
    named = NAMED_TEST.findall(answer)
    assert named or answer.startswith(REASONS)
    for path, name in named:
        assert (ROOT / path).is_file(), f"{label}: {path} does not exist"
        assert name.startswith("test_"), f"{label}: {name} is not a test"
        assert name in function_names(ROOT / path), f"{label}: {path} has no {name}"
