"""Word problems, greedy: right is an answer whose last number is the expected one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from slipstream.evaluation.estimates import estimate_share
from slipstream.evaluation.findings import ProblemCell
from slipstream.evaluation.measures.work import Meter, answer_cost
from slipstream.evaluation.subject import Subject
from slipstream.evaluation.suite import Suite
from slipstream.evaluation.words import encode_prompt
from slipstream.frontend.processor import TextParts

_NUMBER = re.compile(r"\d+(?:,\d{3})*(?!\d)")


class ProblemSet(msgspec.Struct, frozen=True, kw_only=True):
    """Problems of one number of steps and kind of templates, as prompts, with their answers."""

    num_steps: int
    templates: str
    prompts: tuple[tuple[int, ...], ...]
    expected: tuple[str, ...]


def choose_problems(text: TextParts, suite: Suite, per_cell: int) -> tuple[ProblemSet, ...]:
    """Return the first problems of each number of steps and kind of templates, in that order."""
    cells: dict[tuple[int, str], list[tuple[tuple[int, ...], str]]] = {}
    for row in suite.problems:
        members = cells.setdefault((row.num_steps, row.templates), [])
        if len(members) < per_cell:
            members.append((encode_prompt(text, row), row.expected))
    order = sorted(cells, key=lambda cell: (cell[1] != "seen", cell[0]))
    return tuple(
        ProblemSet(
            num_steps=steps,
            templates=templates,
            prompts=tuple(prompt for prompt, _ in cells[steps, templates]),
            expected=tuple(expected for _, expected in cells[steps, templates]),
        )
        for steps, templates in order
    )


def measure_problems(
    subject: Subject, sets: Sequence[ProblemSet], max_tokens: int, meter: Meter
) -> Iterator[ProblemCell]:
    """Yield the share of right answers of each set."""
    for cell in sets:
        num_right = 0
        answers = subject.answer(cell.prompts, max_tokens=max_tokens)
        for prompt, expected, answer in zip(cell.prompts, cell.expected, answers, strict=True):
            num_right += last_number(answer.text) == expected
            meter(answer_cost(prompt, max_tokens))
        right = estimate_share(num_right, len(cell.prompts))
        yield ProblemCell(num_steps=cell.num_steps, templates=cell.templates, right=right)


def last_number(text: str) -> str | None:
    """Return the digits of the last whole number in a text, or None."""
    found = _NUMBER.findall(text)
    return found[-1].replace(",", "") if found else None
