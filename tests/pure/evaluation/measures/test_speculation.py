"""Drafts: acceptance counted over steps, by domain and position; a drafter that changes a text is found out."""

from __future__ import annotations

import pytest

from slipstream.evaluation.measures.speculation import (
    answer_all,
    choose_prompts,
    compare_answers,
    tally_acceptance,
)
from slipstream.evaluation.subject import Answer, VerifyStep
from support.evaluation_world import TEXT, FakeLab, FakeProgress, FakeSubject, tiny_suite

PROMPTS = choose_prompts(TEXT, tiny_suite(), is_native=True, count=9, max_tokens=99)


def answer(*ids, steps=()):
    return Answer(token_ids=ids, text="", steps=tuple(steps))


def compare(plain, drafted, *, margin=1.0, dtype="float32"):
    lab = FakeLab(plain=FakeSubject(margin=margin, dtype=dtype))
    found = compare_answers(PROMPTS, plain, drafted, lambda: lab.open(drafter="none"), TEXT.tokenizer.decode)
    return found, lab


def test_domains_take_turns():
    assert [prompt.domain for prompt in PROMPTS] == ["chat", "json", "documents", "chat"]
    plain = choose_prompts(TEXT, tiny_suite(), is_native=False, count=9, max_tokens=99)
    assert [prompt.domain for prompt in plain] == ["documents"]
    assert len(choose_prompts(TEXT, tiny_suite(), is_native=True, count=2, max_tokens=99)) == 2
    assert choose_prompts(TEXT, tiny_suite(), is_native=True, count=9, max_tokens=2) == ()


def test_all_prompts_are_answered_in_order():
    progress, subject = FakeProgress(), FakeSubject()
    answers = answer_all(subject, PROMPTS, 8, 0.0, progress.advance)
    assert len(answers) == 4
    assert subject.asked == [prompt.token_ids for prompt in PROMPTS]
    assert progress.done == sum(len(prompt.token_ids) + 16 for prompt in PROMPTS)


def test_acceptance_is_counted_over_steps():
    answers = [
        answer(1, steps=[VerifyStep(2, 2, 3), VerifyStep(2, 0, 1)]),
        answer(1, steps=[VerifyStep(2, 1, 2)]),
        answer(1),
        answer(1, steps=[VerifyStep(1, 1, 1)]),
    ]
    rows = {row.domain: row for row in tally_acceptance("trained", 1.0, PROMPTS, answers, 2)}
    assert set(rows) == {"chat", "json", "all"}
    chat = rows["chat"]
    assert chat.num_verify_steps == 3
    assert chat.acceptance_length.value == pytest.approx(5 / 3)
    assert [(share.num_right, share.num_trials) for share in chat.positions] == [(2, 3), (1, 2)]
    assert rows["all"].num_verify_steps == 4
    assert rows["all"].num_prompts == 3
    assert list(tally_acceptance("trained", 0.0, PROMPTS, [answer(1)], 2)) == []


def test_equal_answers_are_lossless_and_need_no_engine():
    same = [answer(1, 2), answer(3)]
    found, lab = compare(same, same)
    assert (found.num_prompts, found.num_identical, found.num_different) == (2, 2, 0)
    assert found.is_lossless
    assert lab.opened == []


@pytest.mark.parametrize("drafted", [(1, 5), (1, 2, 3), (1,), ()])
def test_a_drafter_that_changes_text_is_not_lossless(drafted):
    found, lab = compare([answer(9), answer(1, 2)], [answer(9), answer(*drafted)])
    assert (found.num_identical, found.num_near_ties, found.num_different) == (1, 0, 1)
    assert not found.is_lossless
    assert found.first_different is not None
    assert lab.opened == ["plain"]


def test_the_reference_is_asked_at_the_first_difference():
    _, lab = compare([answer(9), answer(1, 2, 3)], [answer(9), answer(1, 2, 4)])
    assert lab.subjects["plain"].asked == [(*PROMPTS[1].token_ids, 1, 2)]


@pytest.mark.parametrize(
    ("margin", "dtype", "is_tie"),
    [
        (1e-4, "float32", True),
        (1e-2, "float32", False),
        (1e-2, "bfloat16", True),
        (1.0, "bfloat16", False),
        (None, "float32", False),
    ],
)
def test_only_what_arithmetic_cannot_tell_apart_is_a_near_tie(margin, dtype, is_tie):
    found, _ = compare([answer(1)], [answer(2)], margin=margin, dtype=dtype)
    assert found.num_near_ties == int(is_tie)
    assert found.is_lossless is is_tie


@pytest.mark.parametrize("drafted", [(3,), ()])
def test_only_one_of_the_two_best_tokens_can_be_a_near_tie(drafted):
    found, _ = compare([answer(1)], [answer(*drafted)], margin=1e-4)
    assert (found.num_near_ties, found.num_different) == (0, 1)
    assert not found.is_lossless


def test_a_run_that_was_cut_off_compares_what_it_has():
    found, _ = compare([answer(1), answer(2)], [answer(1)])
    assert found.num_prompts == 1
