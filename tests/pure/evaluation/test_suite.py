"""Suites: every kind of row, packed or not; what is no suite is refused with its place. The bundled one is complete."""

from __future__ import annotations

import msgspec
import pytest

from slipstream.base.errors import ConfigError
from slipstream.demo import demo_suite_path
from slipstream.evaluation.suite import read_suite
from support.evaluation_world import header, tiny_suite, write_suite

MAX_BUNDLED_BYTES = 1_500_000


@pytest.mark.parametrize("name", ["suite.jsonl", "suite.jsonl.xz"])
def test_a_suite_reads_back(tmp_path, name):
    write_suite(tmp_path / name, tiny_suite())
    assert read_suite(tmp_path / name) == tiny_suite()


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (b'{"kind": "text", "split": "dev", "domain": "a", "text": "b"}', "split"),
        (b'{"kind": "poem", "text": "b"}', "poem"),
        (b'{"kind": "filler", "text": "b", "more": 1}', "more"),
        (b"no json", "not a row"),
        (b"\xff\xfe", "not a row"),
    ],
)
def test_a_line_that_is_no_row_is_named(tmp_path, second, reason):
    path = tmp_path / "s.jsonl"
    path.write_bytes(msgspec.json.encode(header()) + b"\n" + second)
    with pytest.raises(
        ConfigError, match=rf"s\.jsonl:2: not a row of an evaluation suite.*{reason}|s\.jsonl:2: not a row"
    ):
        read_suite(path)


def test_a_suite_has_one_header_of_this_version(tmp_path):
    path = tmp_path / "s.jsonl"
    path.write_bytes(b'{"kind": "filler", "text": "b"}')
    with pytest.raises(ConfigError, match="0 rows of kind suite; give exactly one"):
        read_suite(path)
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(header(), version=9)))
    with pytest.raises(ConfigError, match="layout version 9; this release reads 1"):
        read_suite(path)


def test_a_file_that_is_absent_or_broken_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="no evaluation suite at .*give a .jsonl or .jsonl.xz file, or bundled"):
        read_suite(tmp_path / "none.jsonl")
    (tmp_path / "s.jsonl.xz").write_bytes(b"not packed")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_suite(tmp_path / "s.jsonl.xz")


def test_the_bundled_suite_is_small_and_holds_everything():
    suite = read_suite(demo_suite_path())
    assert demo_suite_path().stat().st_size <= MAX_BUNDLED_BYTES
    domains = {row.domain for row in (*suite.dialogues, *suite.texts) if row.split == "test"}
    assert {"chat", "documents", "word_problems", "word_problems, new forms", "json", "stories", "needle"} <= domains
    assert {row.domain for row in suite.prompts} >= domains - {"documents"}
    assert len(suite.prompts) >= 1000
    assert {(row.templates, row.num_steps) for row in suite.problems} >= {
        (forms, steps) for forms in ("seen", "held-out") for steps in (1, 2)
    }
    assert all(row.fact.expected in row.fact.text for row in suite.needles)
    assert all(fact.expected != row.fact.expected for row in suite.needles for fact in row.others)


def test_what_is_trained_on_is_not_what_is_asked():
    suite = read_suite(demo_suite_path())
    for rows in (suite.texts, suite.dialogues):
        train = {
            msgspec.json.encode(msgspec.structs.replace(row, split="test")) for row in rows if row.split == "train"
        }
        test = [msgspec.json.encode(row) for row in rows if row.split == "test" and "small_talk" not in row.domain]
        assert [row for row in test if row in train] == []
