"""Receipts say what they are: the index agrees with the files, and a changed file makes a receipt stale."""

from __future__ import annotations

import ast

import pytest

from support.project import ROOT, load_tool

ROOM = "slipstream.kernels."


@pytest.fixture
def certify():
    return load_tool("certify")


def test_the_index_is_current(certify):
    assert (ROOT / "docs" / "receipts" / "index.md").read_text(encoding="utf-8") == certify.index_text(), (
        "run tools/certify.py"
    )


def test_a_receipt_belongs_to_its_files(certify, monkeypatch, tmp_path):
    operation = certify.OPERATIONS[0]
    monkeypatch.setattr(certify, "RECEIPTS", tmp_path)
    assert certify.state_of(operation)[0] == "missing"
    file = certify.receipt_file(operation)
    file.parent.mkdir(parents=True)
    lines = ["[files]", *[f'"{name}" = "{digest}"' for name, digest in certify.digests_of(operation).items()]]
    file.write_text("\n".join(lines))
    assert certify.state_of(operation)[0] == "valid"
    file.write_text("\n".join(lines).replace(next(iter(certify.digests_of(operation).values())), "0" * 16))
    assert certify.state_of(operation)[0] == "stale"


def test_every_receipt_is_of_an_operation(certify):
    folder = ROOT / "docs" / "receipts" / certify.ARCHITECTURE
    known = {certify.receipt_file(operation).name for operation in certify.OPERATIONS}
    assert {file.name for file in folder.glob("*.toml")} <= known


def device_files(certify, file):
    """Every file of the room that an implementation imports, however far away; references and contracts are not run."""
    found, left = set(), [file]
    while left:
        tree = ast.parse((certify.KERNELS / left.pop()).read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith(ROOM):
                continue
            module = node.module.removeprefix(ROOM).replace(".", "/")
            for name in (f"{module}.py", *(f"{module}/{one.name}.py" for one in node.names)):
                is_code = not name.endswith(("/reference.py", "/contract.py")) and (certify.KERNELS / name).is_file()
                if is_code and name not in found:
                    found.add(name)
                    left.append(name)
    return found


def test_a_receipt_is_of_every_file_that_its_kernel_runs(certify):
    for operation in certify.OPERATIONS:
        missing = device_files(certify, f"{operation}/triton_impl.py") - certify.digests_of(operation).keys()
        assert missing <= {"faults.py", "select.py", "registry.py"}, operation
