"""The n-gram model: a distribution, by hand on a small text, better with longer histories on text that has them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.evaluation.ngram import NgramModel

SYMBOLS = st.lists(st.integers(0, 3), max_size=30)


@given(st.lists(SYMBOLS, max_size=3), SYMBOLS, st.integers(1, 4))
def test_probabilities_sum_to_one_after_any_history(texts, history, order):
    model = NgramModel(order, 4)
    model.train(texts)
    total = sum(model.probability([*history, symbol], len(history)) for symbol in range(4))
    assert total == pytest.approx(1.0)


def test_probabilities_are_those_of_the_formula():
    model = NgramModel(2, 4)
    model.train([[0, 1, 0, 1, 0, 2]])
    # Order 1: counts 3, 2, 1 of 6, three different symbols; below it 1/4 each.
    one = {0: (3 + 3 / 4) / 9, 1: (2 + 3 / 4) / 9, 2: (1 + 3 / 4) / 9}
    # Behind 0 stood 1 twice and 2 once: three events, two different symbols.
    assert model.probability([0, 1], 1) == pytest.approx((2 + 2 * one[1]) / 5)
    assert model.probability([0, 0], 1) == pytest.approx((0 + 2 * one[0]) / 5)
    assert model.probability([3, 2], 1) == pytest.approx(one[2])
    assert model.num_trained == 6


def test_bits_are_of_every_symbol_but_the_first():
    model = NgramModel(3, 8)
    assert model.bits([1, 2, 3]) == pytest.approx([3.0, 3.0])
    model.train([[1, 2, 3]])
    assert model.bits([1, 2, 3])[1] < 3.0


def test_longer_histories_pay_where_the_text_has_them():
    text = [0, 1, 2, 0, 2, 1, 0, 0, 1, 1, 2, 2] * 20
    costs = []
    for order in (1, 2, 4):
        model = NgramModel(order, 3)
        model.train([text])
        costs.append(math.fsum(model.bits(text)))
    assert costs[0] > costs[1] > costs[2]


@pytest.mark.parametrize(("order", "num_symbols"), [(0, 2), (2, 0)])
def test_no_order_and_no_alphabet_are_refused(order, num_symbols):
    with pytest.raises(ValueError, match="at least 1"):
        NgramModel(order, num_symbols)
