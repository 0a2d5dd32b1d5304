"""Findings keep each kind of result in its list."""

from __future__ import annotations

from slipstream.evaluation.findings import Findings, Lossless
from support.evaluation_world import good_findings


def test_each_result_finds_its_list():
    found, copy = good_findings(), Findings()
    for name in ("bits", "problems", "needle", "acceptance", "lossless", "ablations"):
        for row in getattr(found, name):
            copy.add(row)
    assert copy == found


def test_near_ties_are_not_the_drafters_fault():
    assert Lossless(num_prompts=3, num_identical=2, num_near_ties=1, num_different=0).is_lossless
    assert not Lossless(num_prompts=3, num_identical=2, num_near_ties=0, num_different=1).is_lossless
