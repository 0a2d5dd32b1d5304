"""Needle: prompts of the asked length with the fact at its depth; an answer must hold the words themselves."""

from __future__ import annotations

import random

import pytest

from slipstream.evaluation.measures.needle import build_needles, build_prompt, holds, measure_needles
from support.evaluation_world import FILLERS, PLAN, TEXT, FakeProgress, FakeSubject, needle, tiny_suite


def words_of(ids):
    return TEXT.tokenizer.decode(ids).split("\n\n")[-2]


@pytest.mark.parametrize("num_tokens", [120, 200, 333])
@pytest.mark.parametrize("depth", [0.0, 0.5, 1.0])
def test_a_prompt_is_as_long_as_whole_sentences_allow(num_tokens, depth):
    ids = build_prompt(TEXT, needle(), FILLERS, num_tokens, depth, random.Random(1))
    assert num_tokens - 40 <= len(ids) <= num_tokens
    text = words_of(ids)
    place = text.index("the secret word is fox") / len(text)
    assert place == pytest.approx(depth, abs=0.3)
    assert "the dog" in text


def test_cells_are_those_that_the_model_can_hold():
    sets = build_needles(TEXT, tiny_suite(), PLAN, 512)
    assert [(cell.num_tokens, cell.depth) for cell in sets] == [(200, 0.0), (200, 1.0)]
    assert sets[0].chance == 0.5
    assert sets[0].expected == ("fox", "book")
    assert build_needles(TEXT, tiny_suite(needles=()), PLAN, 512) == ()
    assert build_needles(TEXT, tiny_suite(fillers=()), PLAN, 512) == ()


def test_cells_differ_in_depth_alone():
    first, last = build_needles(TEXT, tiny_suite(), PLAN, 512)
    for left, right in zip(first.prompts, last.prompts, strict=True):
        assert sorted(words_of(left).split()) == sorted(words_of(right).split())


@pytest.mark.parametrize(
    ("answer", "is_found"),
    [("The code is 12.", True), ("The code is 123.", False), ("the 312", False), ("12", True), ("", False)],
)
def test_only_the_words_themselves_count(answer, is_found):
    assert holds(answer, "12") is is_found


def test_found_facts_are_counted_per_cell():
    sets, progress = build_needles(TEXT, tiny_suite(), PLAN, 512), FakeProgress()
    subject = FakeSubject(lambda ids: "it is fox")
    cells = list(measure_needles(subject, sets, "random", 10, progress.advance))
    assert [(cell.selection, cell.found.num_right, cell.found.num_trials) for cell in cells] == [("random", 1, 2)] * 2
    assert progress.done == sum(len(prompt) + 20 for cell in sets for prompt in cell.prompts)
