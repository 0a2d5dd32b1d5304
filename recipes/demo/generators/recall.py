"""Copy and recall: say a sentence again, or find a fact that stands somewhere in a longer text."""

from __future__ import annotations

import random

from generators.task import Task, assistant, system_turn, user
from generators.word_bank import CITIES, COLORS, JOBS, NAMES, OBJECTS, PET_NAMES, PETS, PLACES, THINGS, draw_name

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


Fact = tuple[str, str, str, str]


def code_fact(rng: random.Random) -> Fact:
    """Return (sentence, question, answer, value) about a code number."""
    key, value = f"{rng.choice(COLORS)} {rng.choice(OBJECTS)}", str(rng.randint(100, 9999))
    sentence = f"The code of the {key} is {value}."
    return sentence, f"What is the code of the {key}?", sentence, value


def place_fact(rng: random.Random) -> Fact:
    """Return (sentence, question, answer, value) about where a person is."""
    key, value = draw_name(rng), rng.choice(PLACES)
    return f"{key} is in the {value}.", f"Where is {key}?", f"{key} is in the {value}.", value


def liking_fact(rng: random.Random) -> Fact:
    """Return (sentence, question, answer, value) about what a person likes."""
    key, value = draw_name(rng), f"{rng.choice(COLORS)} {rng.choice(THINGS)}"
    return f"{key} likes {value}.", f"What does {key} like?", f"{key} likes {value}.", value


def home_fact(rng: random.Random) -> Fact:
    """Return (sentence, question, answer, value) about the city of a person."""
    key, value = draw_name(rng), rng.choice(CITIES)
    asked = rng.choice((f"Where does {key} live?", f"In which city does {key} live?"))
    return f"{key} lives in {value}.", asked, f"{key} lives in {value}.", value


def job_fact(rng: random.Random) -> Fact:
    """Return (sentence, question, answer, value) about the job of a person."""
    key, value = draw_name(rng), rng.choice(JOBS)
    return f"{key} works as a {value}.", f"What is the job of {key}?", f"{key} works as a {value}.", value


def pet_fact(rng: random.Random) -> Fact:
    """Return (sentence, question, answer, value) about the name of an animal."""
    key, value = f"{rng.choice(COLORS)} {rng.choice(PETS)}", draw_name(rng)
    sentence = f"The name of the {key} is {value}."
    return sentence, f"What is the name of the {key}?", sentence, value


def word_fact(rng: random.Random) -> Fact:
    """Return (sentence, question, answer, value) about a secret word."""
    key, value = draw_name(rng), f"{rng.choice(PET_NAMES)} {rng.choice(THINGS)}".lower()
    sentence = f"The secret word of {key} is {value}."
    return sentence, f"What is the secret word of {key}?", sentence, value


KINDS = (code_fact, code_fact, place_fact, liking_fact, home_fact, job_fact, pet_fact, word_fact)


def draw_fact(rng: random.Random) -> Fact:
    """Draw one fact of any kind."""
    return rng.choice(KINDS)(rng)


def draw_facts(rng: random.Random, count: int) -> list[Fact]:
    """Draw facts of one kind with different questions."""
    kind = rng.choice(KINDS)
    facts: dict[str, Fact] = {}
    while len(facts) < count:
        fact = kind(rng)
        facts[fact[1]] = fact
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
        num_fillers = rng.choice((0, 2, 4, 8, 12))
    lines = [fact[0] for fact in facts]
    if fillers:
        lines += [rng.choice(fillers) for _ in range(num_fillers)]
    rng.shuffle(lines)
    asked = rng.sample(facts, min(len(facts), rng.choice((1, 1, 2, 3))))
    text = f"{rng.choice(OPENINGS)}\n\n{' '.join(lines)}"
    messages = system_turn(rng, 0.15)
    first = asked[0]
    if rng.random() < 0.4:
        messages += [user(text), assistant("I have read it. What do you want to know?")]
        messages += [user(first[1]), assistant(first[2])]
    else:
        messages += [user(f"{text}\n\n{first[1]}"), assistant(first[2])]
    for fact in asked[1:]:
        messages += [user(fact[1]), assistant(fact[2])]
    return Task("recall", messages, expected=asked[-1][3])


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
