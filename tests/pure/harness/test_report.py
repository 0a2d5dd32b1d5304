from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.base.errors import ConfigError
from slipstream.harness.provenance import collect
from slipstream.harness.report import build_result, check_result_path, format_rows, to_plain, to_toml, write_result

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
SCALARS = st.one_of(st.booleans(), st.integers(-(2**60), 2**60), st.floats(allow_nan=False), TEXT)
TABLES = st.recursive(
    st.dictionaries(TEXT, st.one_of(SCALARS, st.lists(SCALARS, max_size=4)), max_size=4),
    lambda inner: st.dictionaries(TEXT, st.one_of(SCALARS, inner, st.lists(inner, max_size=3)), max_size=4),
    max_leaves=12,
)


class Point(msgspec.Struct, frozen=True):
    x: int
    y: float | None = None


@given(TABLES)
def test_toml_reads_back_the_same(table):
    assert tomllib.loads(to_toml(table)) == table


def test_structs_become_plain_and_none_is_left_out():
    assert to_plain({"p": (Point(1), Point(2, 0.5)), "n": None}) == {"p": [{"x": 1}, {"x": 2, "y": 0.5}]}
    with pytest.raises(TypeError, match="NoneType"):
        to_toml({"list": [None]})


@pytest.mark.parametrize("ending", ["json", "toml"])
def test_results_are_written_with_provenance(tmp_path, ending):
    result = build_result("demo", collect(2, ["slipstream"]), points=[Point(1)])
    path = tmp_path / "deep" / f"r.{ending}"
    write_result(path, result)
    text = path.read_text(encoding="utf-8")
    read = json.loads(text) if ending == "json" else tomllib.loads(text)
    assert read == result
    assert read["provenance"]["num_threads"] == 2
    assert read["provenance"]["versions"]["numpy"]


def test_other_endings_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"\.toml or \.json"):
        write_result(tmp_path / "r.csv", {})


def test_columns_line_up():
    text = format_rows(["domain", "tokens/s"], [["code", 1.0], ["a long one", None]])
    assert text.splitlines() == ["domain      tokens/s", "code            1.00", "a long one         -"]


def test_a_place_that_cannot_be_written_is_known_before_and_refused_after(tmp_path, monkeypatch):
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "file").write_text("", encoding="utf-8")
    check_result_path(tmp_path / "new" / "deep" / "r.json")
    check_result_path(Path("r.toml"))
    (tmp_path / "r.toml").write_text("", encoding="utf-8")
    check_result_path(tmp_path / "r.toml")
    for name, said in (
        ("r.txt", "must end in .toml or .json"),
        ("folder.toml", "this is a folder"),
        ("file/r.toml", "cannot be written"),
    ):
        with pytest.raises(ConfigError, match=said):
            check_result_path(tmp_path / name)
        with pytest.raises(ConfigError, match="cannot write results"):
            write_result(tmp_path / name, {})
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(ConfigError, match="cannot be written"):
        check_result_path(tmp_path / "r.toml")
    assert sorted(item.name for item in tmp_path.iterdir()) == ["file", "folder.toml", "r.toml"]
