"""Word problems of one or two steps, with the steps written out.

A template is a text with named numbers and a list of operations. Templates of HELD_OUT never enter training.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from generators.task import Task, assistant, system_turn, user
from generators.word_bank import CONTAINERS, NAMES, PLACES, SHOP_THINGS, THINGS, WEEKDAYS

TRIES = 200
PARTINGS = ("loses", "sells", "gives away", "uses", "drops", "breaks", "throws away", "hides")


@dataclass(frozen=True)
class Template:
    """One kind of problem.

    Args:
        questions: wordings with the same meaning; fields in braces.
        numbers: range of each number, by name.
        steps: operations `(left, sign, right)` over number names and earlier results `r1`, `r2`.
        answer: sentence that holds `{r}`, the last result.
    """

    questions: tuple[str, ...]
    numbers: dict[str, tuple[int, int]]
    steps: tuple[tuple[str, str, str], ...]
    answer: str


SMALL, MIDDLE, LARGE = (2, 12), (3, 30), (10, 90)
TRAIN = (
    Template(
        (
            "{a} has {x} {items}. {a} gets {y} more. How many {items} does {a} have now?",
            "{a} had {x} {items} and then found {y} more. How many {items} does {a} have?",
            "There were {x} {items} on the table. {a} puts {y} more there. How many {items} are on the table?",
        ),
        {"x": LARGE, "y": MIDDLE},
        (("x", "+", "y"),),
        "There are {r} {items}.",
    ),
    Template(
        (
            "{a} has {x} {items}. {a} gives {y} {items} to {b}. How many {items} does {a} have left?",
            "{a} had {x} {items} but lost {y} of them. How many {items} are left?",
            "{a} bakes {x} cakes and sells {y} of them. How many cakes are left?",
        ),
        {"x": LARGE, "y": MIDDLE},
        (("x", "-", "y"),),
        "{r} are left.",
    ),
    Template(
        (
            "{a} has {x} {boxes} with {y} {items} each. How many {items} does {a} have in total?",
            "There are {x} {boxes}. Each {box} holds {y} {items}. How many {items} are there in total?",
            "In the {place} there are {x} {boxes} of {y} {items}. How many {items} is that?",
        ),
        {"x": SMALL, "y": SMALL},
        (("x", "*", "y"),),
        "There are {r} {items} in total.",
    ),
    Template(
        (
            "A {thing} costs {x} dollars. How much do {y} of them cost?",
            "{a} buys {y} {thing}s for {x} dollars each. How much does {a} pay?",
        ),
        {"x": SMALL, "y": SMALL},
        (("x", "*", "y"),),
        "The cost is {r} dollars.",
    ),
    Template(
        (
            "{a} has {x} {items} and {b} has {y} {items}. How many {items} do they have together?",
            "{a} picks {x} {items}. {b} picks {y} {items}. How many {items} do they have in all?",
        ),
        {"x": LARGE, "y": LARGE},
        (("x", "+", "y"),),
        "Together they have {r} {items}.",
    ),
    Template(
        (
            "{a} has {x} {items}. {b} has {y} fewer. How many {items} does {b} have?",
            "{b} has {y} {items} less than {a}. {a} has {x} {items}. How many {items} does {b} have?",
        ),
        {"x": LARGE, "y": MIDDLE},
        (("x", "-", "y"),),
        "{b} has {r} {items}.",
    ),
    Template(
        (
            "{a} has {x} {items}. {a} buys {y} more and gives {z} to {b}. How many {items} does {a} have now?",
            "There are {x} {items} in the {place}. {a} brings {y} more and {b} takes {z} away. "
            "How many {items} are in the {place}?",
        ),
        {"x": LARGE, "y": MIDDLE, "z": MIDDLE},
        (("x", "+", "y"), ("r1", "-", "z")),
        "There are {r} {items} now.",
    ),
    Template(
        (
            "{a} has {x} {items}. {a} gives {y} to {b} and then finds {z} more. How many {items} does {a} have now?",
            "A shop has {x} {items}. It sells {y} and gets {z} new ones. How many {items} does the shop have now?",
        ),
        {"x": LARGE, "y": MIDDLE, "z": MIDDLE},
        (("x", "-", "y"), ("r1", "+", "z")),
        "The answer is {r} {items}.",
    ),
    Template(
        (
            "{a} has {x} {boxes} with {y} {items} each and {z} loose {items}. How many {items} are there in total?",
            "{a} fills {x} {boxes} with {y} {items} each. {z} {items} do not fit. How many {items} are there?",
        ),
        {"x": SMALL, "y": SMALL, "z": MIDDLE},
        (("x", "*", "y"), ("r1", "+", "z")),
        "There are {r} {items} in total.",
    ),
    Template(
        (
            "{a} buys {y} {thing}s for {x} dollars each and pays with {z} dollars. How much change does {a} get?",
            "{a} has {z} dollars. {a} buys {y} {thing}s at {x} dollars each. How many dollars are left?",
        ),
        {"x": SMALL, "y": (2, 8), "z": (30, 99)},
        (("x", "*", "y"), ("z", "-", "r1")),
        "{a} has {r} dollars left.",
    ),
    Template(
        (
            "{a} gives {x} {items} to {y} friends so that each friend gets the same. "
            "How many {items} does each friend get?",
            "{x} {items} are shared by {y} children equally. How many {items} does each child get?",
        ),
        {"x": (4, 144), "y": SMALL},
        (("x", "/", "y"),),
        "Each gets {r} {items}.",
    ),
    Template(
        (
            "{a} is {x} years old. {b} is {y} years older. How old is {b}?",
            "{b} is {y} years older than {a}. {a} is {x}. How old is {b}?",
        ),
        {"x": (3, 60), "y": (2, 30)},
        (("x", "+", "y"),),
        "{b} is {r} years old.",
    ),
    Template(
        (
            "{a} reads {x} pages a day. How many pages does {a} read in {y} days?",
            "{a} walks {x} miles every day. How many miles is that in {y} days?",
        ),
        {"x": SMALL, "y": SMALL},
        (("x", "*", "y"),),
        "The answer is {r}.",
    ),
    Template(
        (
            "A bus has {x} people. {y} get off and {z} get on. How many people are on the bus?",
            "A train carries {x} people. At the station {y} leave and {z} enter. How many people are on the train?",
        ),
        {"x": LARGE, "y": MIDDLE, "z": MIDDLE},
        (("x", "-", "y"), ("r1", "+", "z")),
        "There are {r} people.",
    ),
    Template(
        (
            "{a} earns {x} dollars an hour and works {y} hours. Then {a} spends {z} dollars. "
            "How many dollars does {a} have left?",
        ),
        {"x": (4, 15), "y": (2, 9), "z": MIDDLE},
        (("x", "*", "y"), ("r1", "-", "z")),
        "{a} has {r} dollars left.",
    ),
    Template(
        (
            "{a} has {x} {items} and {parts} {y} of them. How many {items} are left?",
            "There are {x} {items} in the {place}. {a} {parts} {y} {items}. How many {items} are left?",
            "{x} {items} are in a {box}. {a} {parts} {y}. How many {items} remain in the {box}?",
        ),
        {"x": LARGE, "y": MIDDLE},
        (("x", "-", "y"),),
        "{r} {items} are left.",
    ),
    Template(
        (
            "{a} has {x} {items}, {parts} {y} on {day} and {z} on {later}. How many {items} are left?",
            "There are {x} {items}. {a} takes {y} and {b} takes {z}. How many {items} are left?",
            "{a} had {x} {items}. First {a} {parts} {y}, then {z} more. How many {items} remain?",
        ),
        {"x": (40, 95), "y": SMALL, "z": SMALL},
        (("x", "-", "y"), ("r1", "-", "z")),
        "{r} {items} are left.",
    ),
    Template(
        (
            "{a} has {x} {boxes} with {y} {items} each and {parts} {z} {items}. How many {items} are left?",
            "There are {x} {boxes} of {y} {items} in the {place}. {a} {parts} {z}. How many {items} are left?",
            "{a} packs {x} {boxes} with {y} {items} in each {box}. Then {a} {parts} {z} {items}. "
            "How many {items} does {a} still have?",
        ),
        {"x": (3, 9), "y": (4, 9), "z": SMALL},
        (("x", "*", "y"), ("r1", "-", "z")),
        "{r} {items} are left.",
    ),
    Template(
        (
            "{a} finds {x} {items} on {day} and {y} on {later}. How many {items} did {a} find?",
            "{a} buys {x} {items} in the morning and {y} in the evening. How many {items} did {a} buy?",
            "{a} counts {x} {items} in one {box} and {y} in another. How many {items} are there?",
        ),
        {"x": LARGE, "y": MIDDLE},
        (("x", "+", "y"),),
        "That makes {r} {items}.",
    ),
    Template(
        (
            "{a} puts {y} {items} in every {box}. There are {x} {boxes}. How many {items} does {a} need?",
            "Every {box} needs {y} {items}. How many {items} do {x} {boxes} need?",
            "{a} makes {x} {boxes} and fills every {box} with {y} {items}. How many {items} does {a} use?",
        ),
        {"x": SMALL, "y": SMALL},
        (("x", "*", "y"),),
        "{r} {items} are needed.",
    ),
    Template(
        (
            "What is {x} plus {y}?",
            "How much is {x} + {y}?",
            "Add {x} and {y}.",
            "Calculate {x} + {y}.",
        ),
        {"x": (1, 99), "y": (1, 99)},
        (("x", "+", "y"),),
        "The answer is {r}.",
    ),
    Template(
        ("What is {x} minus {y}?", "How much is {x} - {y}?", "Subtract {y} from {x}.", "Calculate {x} - {y}."),
        {"x": (5, 99), "y": (1, 90)},
        (("x", "-", "y"),),
        "The answer is {r}.",
    ),
    Template(
        ("What is {x} times {y}?", "How much is {x} * {y}?", "Multiply {x} by {y}.", "Calculate {x} * {y}."),
        {"x": (2, 12), "y": (2, 12)},
        (("x", "*", "y"),),
        "The answer is {r}.",
    ),
)
HELD_OUT = (
    Template(
        ("{a} collects {x} {items} on one day and {y} on the next. How many {items} did {a} collect?",),
        {"x": LARGE, "y": MIDDLE},
        (("x", "+", "y"),),
        "{a} collected {r} {items}.",
    ),
    Template(
        ("A farmer has {x} {items}. The wind blows {y} of them away. How many {items} remain?",),
        {"x": LARGE, "y": MIDDLE},
        (("x", "-", "y"),),
        "{r} {items} remain.",
    ),
    Template(
        ("{a} plants {x} rows of flowers with {y} flowers in every row. How many flowers does {a} plant?",),
        {"x": SMALL, "y": SMALL},
        (("x", "*", "y"),),
        "{a} plants {r} flowers.",
    ),
    Template(
        ("{a} has {x} {items}, eats {y} for lunch and {z} for dinner. How many {items} are left?",),
        {"x": (40, 95), "y": SMALL, "z": SMALL},
        (("x", "-", "y"), ("r1", "-", "z")),
        "{r} {items} are left.",
    ),
    Template(
        ("{a} carries {x} {boxes} with {y} {items} each and drops {z} {items}. How many {items} does {a} still have?",),
        {"x": (3, 9), "y": (4, 9), "z": SMALL},
        (("x", "*", "y"), ("r1", "-", "z")),
        "{a} still has {r} {items}.",
    ),
)


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
    first, second = rng.sample(NAMES, 2)
    box, boxes = rng.choice(CONTAINERS)
    day, later = rng.sample(WEEKDAYS, 2)
    fields = {
        "day": day,
        "later": later,
        "parts": rng.choice(PARTINGS),
        "a": first,
        "b": second,
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
