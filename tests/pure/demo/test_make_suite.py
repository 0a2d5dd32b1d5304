"""The maker of the evaluation suite: rows that the suite's reader takes, seeded, held out from training."""

from __future__ import annotations

import support.demo_recipe  # noqa: F401

# isort: split
import json
import lzma
import random

import make_suite
import pytest
from chat_format import DOCUMENT_START
from corpus import DOCUMENT_SHARES, read_documents

from slipstream.evaluation.suite import parse_suite

SENTENCE = "The {} number {} runs slowly through the old town in the evening."


@pytest.fixture
def data(tmp_path):
    for part, count in (("train-00", 400), ("heldout", 60)):
        rows = [{"q": f"What is {part} {i}?", "a": SENTENCE.format(part, i)} for i in range(count)]
        write(tmp_path / f"chat-{part}.jsonl.xz", rows)
    for source in DOCUMENT_SHARES:
        rows = [{"source": source, "text": f"{i}: {SENTENCE.format(source, i)}"} for i in range(1700)]
        write(tmp_path / f"docs-{source}.jsonl.xz", rows)
    return tmp_path


@pytest.fixture(autouse=True)
def small(monkeypatch):
    for name, value in {"NUM_TEXTS": 4, "NUM_PROBLEMS": 5, "NUM_PROMPTS_OF_A_DOMAIN": 6, "NUM_ROUNDS": 12}.items():
        monkeypatch.setattr(make_suite, name, value)
    monkeypatch.setattr(make_suite, "NUM_FILLERS", 20)
    monkeypatch.setattr(make_suite, "NUM_NEEDLES", 3)


def write(path, rows):
    with lzma.open(path, "wt", encoding="utf-8") as lines:
        lines.writelines(json.dumps(row) + "\n" for row in rows)


def build(data):
    return list(make_suite.build_rows(data))


def test_the_rows_are_a_suite_with_every_kind(data):
    suite = parse_suite([json.dumps(row).encode() for row in build(data)], "made")
    assert suite.header.probe_text.startswith(DOCUMENT_START)
    domains = {row.domain for row in suite.dialogues if row.split == "test"}
    assert {"chat", "word_problems", "json", "stories", "needle", "stories, new forms"} <= domains
    assert {row.domain for row in suite.prompts} >= domains | {"documents"}
    assert {row.split for row in suite.texts} == {"train", "test"}
    assert len(suite.needles) == 3
    assert len(suite.fillers) == 20
    assert {row.templates for row in suite.problems} == {"seen", "held-out"}


def test_two_runs_write_the_same(data):
    assert build(data) == build(data)


def test_no_held_out_text_stands_in_the_training_sample(data):
    rows = [row for row in build(data) if row["kind"] in ("dialogue", "text")]
    texts = {
        split: [json.dumps(r.get("messages", r.get("text"))) for r in rows if r["split"] == split]
        for split in ("train", "test")
    }
    assert texts["test"]
    assert not set(texts["train"]) & set(texts["test"])
    assert len(set(texts["test"])) == len(texts["test"])
    assert not any(", new forms" in row["domain"] for row in rows if row["split"] == "train")


def test_sentences_between_facts_are_not_those_of_the_sample(data):
    rows = build(data)
    fillers = {row["text"] for row in rows if row["kind"] == "filler"}
    texts = {
        split: " ".join(json.dumps(row["messages"]) for row in rows if row.get("split") == split and "messages" in row)
        for split in ("train", "test")
    }
    assert any(filler in texts["test"] for filler in fillers)
    assert not any(filler in texts["train"] for filler in fillers)


@pytest.mark.parametrize("num_workers", [1, 8, 12, 16])
def test_held_out_documents_are_those_that_training_passes_over(data, num_workers):
    used = {text for part in range(num_workers) for text in read_documents(data, part, num_workers)}
    held_out, others = make_suite.sort_documents(data)
    assert held_out
    assert not used & {text for _, text in held_out}
    assert set(others) == set(DOCUMENT_SHARES)


def test_a_long_text_is_cut_at_the_end_of_a_line():
    lines = "\n".join(["word " * 40] * 100)
    cut = make_suite.cut(lines)
    assert len(cut) <= make_suite.MAX_TEXT_CHARS
    assert lines.startswith(cut + "\n")
    assert make_suite.cut("short") == "short"


def test_steps_are_counted_as_they_are_written():
    rows = list(make_suite.problem_rows(random.Random(1)))
    assert {row["num_steps"] for row in rows} >= {1, 2}
    counts = {}
    for row in rows:
        cell = (row["templates"], row["num_steps"])
        counts[cell] = counts.get(cell, 0) + 1
    assert max(counts.values()) == 5
