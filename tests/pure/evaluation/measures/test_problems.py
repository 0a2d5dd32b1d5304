"""Word problems: the last number decides."""

from __future__ import annotations

import pytest

from slipstream.evaluation.measures.problems import choose_problems, last_number, measure_problems
from support.evaluation_world import TEXT, FakeProgress, FakeSubject, tiny_suite

SUITE = tiny_suite(problems=tiny_suite().problems * 3)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("8 * 9 = 72, 72 - 4 = 68. 68 stamps are left.", "68"),
        ("It is 1,204.", "1204"),
        ("between 3,4", "4"),
        ("none", None),
        ("", None),
        ("72 or 7", "7"),
    ],
)
def test_the_last_number_is_read_as_it_is_written(text, number):
    assert last_number(text) == number


def test_known_forms_come_first_and_steps_ascend():
    sets = choose_problems(TEXT, SUITE, 2)
    assert [(cell.templates, cell.num_steps) for cell in sets] == [
        ("seen", 1),
        ("seen", 2),
        ("held-out", 1),
        ("held-out", 2),
    ]
    assert {len(cell.prompts) for cell in sets} == {2}


def test_right_answers_are_counted_per_kind():
    sets, progress = choose_problems(TEXT, SUITE, 9), FakeProgress()

    def reply(ids):
        return "72" if "count 1" in TEXT.tokenizer.decode(ids) else "72 no 71"

    cells = list(measure_problems(FakeSubject(reply), sets, 16, progress.advance))
    assert [(cell.right.num_right, cell.right.num_trials) for cell in cells] == [(3, 3), (0, 3), (3, 3), (0, 3)]
    assert progress.done == sum(len(prompt) + 32 for cell in sets for prompt in cell.prompts)
