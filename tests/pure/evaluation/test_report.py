"""Tables say what was found; the parts of a result survive a file."""

from __future__ import annotations

import io
import tomllib

from rich.console import Console

from slipstream.evaluation.findings import Findings, Lossless
from slipstream.evaluation.report import as_parts, build_tables, title_of
from slipstream.harness.report import to_plain, to_toml
from support.evaluation_world import ablation, good_findings


def shown(findings):
    console = Console(file=io.StringIO(), width=200)
    for table in build_tables(findings):
        console.print(table)
    return console.file.getvalue()


def test_every_measurement_has_a_table():
    text = shown(good_findings())
    for title in ("Bits per byte", "Word problems", "Needle", "Acceptance", "Greedy answers", "Ablations", "Marks"):
        assert title in text
    assert "0.800 ± 0.010" in text
    assert "95 % (76-99)" in text
    assert shown(Findings()) == ""


def test_controls_show_all_domains_as_one():
    lines = [line for line in shown(good_findings()).splitlines() if "untrained " in line and "control" not in line]
    assert len(lines) == 1
    assert " all " in lines[0]


def test_an_ablation_that_changes_nothing_is_shouted():
    findings = Findings(ablations=[ablation("shared expert", 0.0, error=0.0, shift=0.0)])
    assert "CHANGED NOTHING" in shown(findings)
    assert "CHANGED NOTHING" not in shown(good_findings())


def test_a_changed_answer_fails_and_is_quoted():
    row = Lossless(num_prompts=2, num_identical=1, num_near_ties=0, num_different=1, first_different="the fox")
    text = shown(Findings(lossless=[row]))
    assert "FAIL" in text
    assert "'the fox'" in text


def test_parts_survive_a_file_and_partial_ones_say_so():
    findings = good_findings()
    parts = tomllib.loads(to_toml(to_plain(as_parts(findings))))
    assert parts["is_partial"] is False
    assert "unfinished" not in parts
    assert parts["bits"][0]["bits_per_byte"]["value"] == 0.8
    assert parts["needle"][0]["found"]["num_trials"] == 20
    assert all(mark["is_met"] for mark in parts["marks"])
    findings.is_partial, findings.unfinished = True, ["ablations"]
    assert as_parts(findings)["unfinished"] == ["ablations"]


def test_notes_stand_above_the_tables():
    assert title_of("demo", "none", ["no drafter"]) == "demo, drafter none\nnote: no drafter"
