"""Templates of the word problems: wordings with the same meaning, their numbers and the steps to work them out."""

from __future__ import annotations

from dataclasses import dataclass


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
            "{b} gives {y} {items} to {a}, who already has {x}. How many {items} does {a} have then?",
            "{a} owns {x} {items}. On {day}, {b} brings {y} more. How many {items} does {a} own now?",
            "The {place} has {x} {items}. {y} new {items} arrive. How many {items} are there now?",
        ),
        {"x": LARGE, "y": MIDDLE},
        (("x", "+", "y"),),
        "Now there are {r} {items}.",
    ),
    Template(
        (
            "Of {x} {items}, {y} are broken. How many {items} are not broken?",
            "{a} needs {x} {items} and has {y}. How many {items} are missing?",
            "{x} children are in the {place}. {y} go home. How many children stay?",
            "{a} wants to read {x} pages and has read {y}. How many pages are left to read?",
        ),
        {"x": LARGE, "y": MIDDLE},
        (("x", "-", "y"),),
        "The answer is {r}.",
    ),
    Template(
        (
            "{y} people each bring {x} {items}. How many {items} do they bring?",
            "One {box} weighs {x} pounds. How much do {y} {boxes} weigh?",
            "{a} draws {x} pictures every {day}. How many pictures are that after {y} weeks?",
            "There are {y} tables in the {place} with {x} chairs each. How many chairs are there?",
        ),
        {"x": SMALL, "y": SMALL},
        (("x", "*", "y"),),
        "That makes {r}.",
    ),
    Template(
        (
            "{a} packs {x} {items} into {y} {boxes}, the same number in each. How many {items} are in one {box}?",
            "{y} {thing}s cost {x} dollars. How much does one {thing} cost?",
            "{a} cuts {x} {items} into {y} equal groups. How many {items} are in one group?",
        ),
        {"x": (4, 144), "y": SMALL},
        (("x", "/", "y"),),
        "It is {r} for each.",
    ),
    Template(
        (
            "{a} has {x} {items}, {b} has {y} and {c} has {z}. How many {items} do they have together?",
            "{a} sees {x} birds on {day}, {y} on {later} and then {z} more. How many birds does {a} see?",
            "In the {place} there are {x} red, {y} blue and {z} green {items}. How many {items} is that in all?",
        ),
        {"x": MIDDLE, "y": MIDDLE, "z": MIDDLE},
        (("x", "+", "y"), ("r1", "+", "z")),
        "Together that is {r}.",
    ),
    Template(
        (
            "{a} has {x} {items}. {b} has {y} more than {a}. How many {items} do they have together?",
            "One {box} holds {x} {items} and the other one {y} more. How many {items} are in both?",
        ),
        {"x": MIDDLE, "y": SMALL},
        (("x", "+", "y"), ("r1", "+", "x")),
        "They have {r} {items} together.",
    ),
    Template(
        (
            "{a} has {z} {items} and gets {y} {boxes} with {x} {items} each. How many {items} does {a} have now?",
            "{a} pays {z} dollars for a ticket and {x} dollars for each of {y} meals. How many dollars is that?",
        ),
        {"x": SMALL, "y": SMALL, "z": MIDDLE},
        (("x", "*", "y"), ("r1", "+", "z")),
        "In total it is {r}.",
    ),
    Template(
        (
            "{a} has {x} {items}, buys {y} and gets {z} as a gift. How many {items} does {a} have?",
            "{x} people sit in the {place}. {y} come in, then {z} more. How many people are there?",
        ),
        {"x": LARGE, "y": SMALL, "z": SMALL},
        (("x", "+", "y"), ("r1", "+", "z")),
        "There are {r} now.",
    ),
    Template(
        (
            "{a} saves {x} dollars a week for {y} weeks and then pays {z} dollars. How many dollars remain?",
            "{y} {boxes} hold {x} {items} each, but {z} of them are bad. How many good {items} are there?",
            "{a} makes {x} {thing}s a day for {y} days. {b} buys {z}. How many does {a} keep?",
        ),
        {"x": (4, 12), "y": (3, 9), "z": SMALL},
        (("x", "*", "y"), ("r1", "-", "z")),
        "{r} remain.",
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
