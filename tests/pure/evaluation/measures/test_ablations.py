"""Ablations: the change in bits over the same texts; no change at all is told apart from a small one."""

from __future__ import annotations

import math

import pytest

from slipstream.evaluation.measures.ablations import compare_bits
from slipstream.evaluation.measures.bits import ScoredText
from slipstream.evaluation.verdict import cost_of

TEXTS = [
    ScoredText(domain=domain, token_ids=(1, 2, 3), num_bytes=num_bytes)
    for domain, num_bytes in (("a", 10), ("a", 10), ("b", 20), ("b", 20))
]
BEFORE = [[1.0, 2.0], [2.0, 2.0], [4.0, 1.0], [3.0, 3.0]]


def test_the_change_is_per_byte_and_the_worst_domain_is_named():
    after = [[2.0, 2.0], [3.0, 2.0], [4.0, 1.0], [3.0, 3.5]]
    row = compare_bits("f", "off", TEXTS, BEFORE, after)
    assert row.change.value == pytest.approx(2.5 / 60)
    assert row.bits_per_byte == pytest.approx(20.5 / 60)
    assert (row.worst_domain, row.worst_change) == ("a", pytest.approx(0.1))
    assert row.largest_shift == pytest.approx(math.log(2))


def test_an_ablation_that_changes_nothing_is_reported_as_such():
    row = compare_bits("f", "off", TEXTS, BEFORE, [list(bits) for bits in BEFORE])
    assert row.largest_shift == 0.0
    assert cost_of(row) == "nothing"


def test_a_change_that_cancels_is_still_a_change():
    after = [[2.0, 1.0], [2.0, 2.0], [4.0, 1.0], [3.0, 3.0]]
    row = compare_bits("f", "off", TEXTS, BEFORE, after)
    assert row.change.value == 0.0
    assert cost_of(row) == "unclear"
