"""Word problems of one or two steps, with the steps written out.

A template is a text with named numbers and a list of operations. Templates of HELD_OUT never enter training.
"""

from __future__ import annotations

import random

from generators.task import Task, assistant, system_turn, user
from generators.word_bank import CONTAINERS, NAMES, PLACES, SHOP_THINGS, THINGS, WEEKDAYS
from generators.word_templates import HELD_OUT, TRAIN, Template

TRIES = 200
PARTINGS = ("loses", "sells", "gives away", "uses", "drops", "breaks", "throws away", "hides")


def compute(numbers: dict[str, int], steps: tuple[tuple[str, str, str], ...]) -> tuple[list[str], int] | None:
    """Work out the steps; None if a result is negative, too large or not whole."""
    values = dict(numbers)
    lines = []
    result = 0
    for index, (left, sign, right) in enumerate(steps):
        x, y = values[left], values[right]
        if sign == "/" and x % y:
            return None
        result = {"+": x + y, "-": x - y, "*": x * y, "/": x // y}[sign]
        if not 0 < result < 1000:
            return None
        values[f"r{index + 1}"] = result
        lines.append(f"{x} {sign} {y} = {result}")
    return lines, result


def draw(rng: random.Random, template: Template) -> tuple[str, list[str], str, int]:
    """Return question, step lines, answer sentence and result of one problem."""
    for _ in range(TRIES):
        numbers = {name: rng.randint(*span) for name, span in template.numbers.items()}
        if any(sign == "/" for _, sign, _ in template.steps):
            numbers["x"] = numbers["y"] * rng.randint(2, 12)
        worked = compute(numbers, template.steps)
        if worked is not None:
            break
    else:
        raise ValueError(f"no numbers fit the template {template.questions[0]!r}")
    lines, result = worked
    first, second, third = rng.sample(NAMES, 3)
    box, boxes = rng.choice(CONTAINERS)
    day, later = rng.sample(WEEKDAYS, 2)
    fields = {
        "day": day,
        "later": later,
        "parts": rng.choice(PARTINGS),
        "a": first,
        "b": second,
        "c": third,
        "items": rng.choice(THINGS),
        "thing": rng.choice(SHOP_THINGS),
        "box": box,
        "boxes": boxes,
        "place": rng.choice(PLACES),
        "r": result,
        **numbers,
    }
    return rng.choice(template.questions).format(**fields), lines, template.answer.format(**fields), result


def make(rng: random.Random, held_out: bool = False, thinking: bool | None = None) -> Task:
    """Write one problem; without thinking the steps stand in the answer itself."""
    question, lines, sentence, result = draw(rng, rng.choice(HELD_OUT if held_out else TRAIN))
    if thinking is None:
        thinking = rng.random() < 0.6
    if thinking:
        plan = "One step." if len(lines) == 1 else "Two steps."
        reply = assistant(sentence, "\n".join([plan, *lines]))
    else:
        reply = assistant(", ".join(lines) + ". " + sentence)
    messages = [*system_turn(rng), user(question), reply]
    return Task("word_problems", messages, expected=str(result))
