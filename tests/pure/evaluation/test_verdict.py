"""The marks: met by good findings, and each missed by one deliberate fault; only losslessness is required."""

from __future__ import annotations

import msgspec
import pytest

from slipstream.evaluation.estimates import estimate_share
from slipstream.evaluation.findings import Findings, Lossless, ProblemCell
from slipstream.evaluation.verdict import cost_of, judge
from support.evaluation_world import ablation, acceptance, good_findings, needle_cell, ratio


def missed(findings):
    return [mark.name for mark in judge(findings) if not mark.is_met]


def test_good_findings_miss_nothing_and_nothing_measured_has_no_marks():
    assert missed(good_findings()) == []
    assert judge(Findings()) == ()


def changes_text(findings):
    findings.lossless = [Lossless(num_prompts=9, num_identical=8, num_near_ties=0, num_different=1)]


def loses_to_ngrams(findings):
    row = findings.bits[0]
    findings.bits = [row, msgspec.structs.replace(row, domain="json", bits_per_byte=ratio(1.7))]


def cannot_count(findings):
    findings.problems[0] = ProblemCell(num_steps=1, templates="seen", right=estimate_share(16, 20))


def selects_badly(findings):
    findings.needle[0] = needle_cell("learned", 17)


def finds_without_looking(findings):
    findings.needle[2] = needle_cell("random", 9)


def drafts_badly(findings):
    findings.acceptance[0] = acceptance("word_problems", 2.9)


def drafts_without_training(findings):
    findings.acceptance[2] = acceptance("all", 1.4, "untrained")


def has_an_idle_feature(findings):
    findings.ablations.append(ablation("expert selection bias", 0.0, error=0.0, shift=0.0))


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        (changes_text, "greedy answers are the same"),
        (loses_to_ngrams, "fewer bits than the n-gram model"),
        (cannot_count, "problems of 1 step,"),
        (selects_badly, "learned selection within 3 points"),
        (finds_without_looking, "random selection near chance"),
        (drafts_badly, "acceptance length, word_problems"),
        (drafts_without_training, "untrained control"),
        (has_an_idle_feature, "every feature that is switched off costs bits"),
    ],
)
def test_a_fault_misses_its_mark_and_no_other(fault, name):
    findings = good_findings()
    fault(findings)
    names = missed(findings)
    assert len(names) == 1
    assert name in names[0]
    required = [mark for mark in judge(findings) if mark.is_required and not mark.is_met]
    assert bool(required) == (fault is changes_text)


def test_what_an_ablation_did_is_said_in_one_word():
    assert cost_of(ablation("a", 0.0, error=0.0, shift=0.0)) == "nothing"
    assert cost_of(ablation("a", 0.01, error=0.01)) == "unclear"
    assert cost_of(ablation("a", 0.03, error=0.01)) == "costs"
    assert cost_of(ablation("a", -0.03, error=0.01)) == "gains"


def test_the_end_of_a_text_is_no_test_of_local_selection():
    findings = good_findings()
    assert any(cell.selection == "local" and cell.depth == 1.0 and cell.found.share == 1.0 for cell in findings.needle)
    assert missed(findings) == []


def test_acceptance_marks_are_for_three_drafts():
    findings = good_findings()
    row = acceptance("json", 1.5)
    findings.acceptance.append(msgspec.structs.replace(row, positions=row.positions[:2]))
    assert missed(findings) == []
