"""Units of work: longer prompts and answers are more."""

from __future__ import annotations

from slipstream.evaluation.measures.work import answer_cost, answers_cost


def test_generated_tokens_count_double():
    assert answer_cost([1, 2, 3], 10) == 23
    assert answers_cost([[1], [1, 2]], 5) == 23
