"""Copy and recall: say a sentence again, or find a fact that stands somewhere in a longer text."""

from __future__ import annotations

import random

from generators.task import Task, assistant, system_turn, user
from generators.word_bank import COLORS, NAMES, OBJECTS, PLACES, THINGS

OPENINGS = (
    "Read this text and remember it.",
    "Here is a text.",
    "Please read the text below.",
    "Keep the following in mind.",
)
COPY_REQUESTS = (
    "Repeat after me: {}",
    "Say this again: {}",
    "Copy this sentence: {}",
    "Repeat this text.\n\n{}",
)


def code_fact(rng: random.Random) -> tuple[str, str, str, str, str]:
    """Return (key, fact, question, answer, value) about a code number."""
    key = f"{rng.choice(COLORS)} {rng.choice(OBJECTS)}"
    value = str(rng.randint(100, 9999))
    return (
        key,
        f"The code of the {key} is {value}.",
        f"What is the code of the {key}?",
        f"The code of the {key} is {value}.",
        value,
    )


def place_fact(rng: random.Random) -> tuple[str, str, str, str, str]:
    """Return (key, fact, question, answer, value) about where a person is."""
    key, value = rng.choice(NAMES), rng.choice(PLACES)
    return key, f"{key} is in the {value}.", f"Where is {key}?", f"{key} is in the {value}.", value


def owner_fact(rng: random.Random) -> tuple[str, str, str, str, str]:
    """Return (key, fact, question, answer, value) about what a person likes."""
    key, value = rng.choice(NAMES), f"{rng.choice(COLORS)} {rng.choice(THINGS)}"
    return key, f"{key} likes {value}.", f"What does {key} like?", f"{key} likes {value}.", value


def draw_facts(rng: random.Random, count: int) -> list[tuple[str, str, str, str, str]]:
    """Draw facts of one kind with different keys."""
    kind = rng.choice((code_fact, code_fact, place_fact, owner_fact))
    facts: dict[str, tuple[str, str, str, str, str]] = {}
    while len(facts) < count:
        fact = kind(rng)
        facts[fact[0]] = fact
    return list(facts.values())


def find_fact(rng: random.Random, fillers: list[str], num_fillers: int | None = None) -> Task:
    """Hide one to six facts among ordinary sentences and ask for one of them.

    Args:
        rng: source of randomness.
        fillers: ordinary sentences; may be empty.
        num_fillers: how many of them to use; drawn when None.
    """
    facts = draw_facts(rng, rng.choice((1, 1, 2, 3, 4, 6)))
    if num_fillers is None:
        num_fillers = rng.choice((0, 2, 4, 8, 12, 20, 30))
    lines = [fact[1] for fact in facts]
    if fillers:
        lines += [rng.choice(fillers) for _ in range(num_fillers)]
    rng.shuffle(lines)
    asked = rng.sample(facts, min(len(facts), rng.choice((1, 1, 2, 3))))
    text = f"{rng.choice(OPENINGS)}\n\n{' '.join(lines)}"
    messages = system_turn(rng, 0.15)
    first = asked[0]
    if rng.random() < 0.4:
        messages += [user(text), assistant("I have read it. What do you want to know?")]
        messages += [user(first[2]), assistant(first[3])]
    else:
        messages += [user(f"{text}\n\n{first[2]}"), assistant(first[3])]
    for fact in asked[1:]:
        messages += [user(fact[2]), assistant(fact[3])]
    return Task("recall", messages, expected=asked[-1][4])


def copy_sentence(rng: random.Random, fillers: list[str]) -> Task:
    """Ask for a sentence word for word."""
    words = [rng.choice(COLORS + OBJECTS + PLACES + THINGS + NAMES) for _ in range(rng.randint(3, 12))]
    sentence = rng.choice(fillers) if fillers and rng.random() < 0.6 else " ".join(words)
    messages = [*system_turn(rng, 0.1), user(rng.choice(COPY_REQUESTS).format(sentence)), assistant(sentence)]
    return Task("copy", messages, expected=sentence)


def make(rng: random.Random, fillers: list[str], num_fillers: int | None = None) -> Task:
    """Write one recall or copy task."""
    if num_fillers is None and rng.random() < 0.3:
        return copy_sentence(rng, fillers)
    return find_fact(rng, fillers, num_fillers)
