"""Receipts say what they are: the index agrees with the files, and a changed file makes a receipt stale."""

from __future__ import annotations

import pytest

from support.project import ROOT, load_tool


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
