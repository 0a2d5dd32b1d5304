"""Facts planted in a few hundred to two thousand tokens of ordinary text, and questions about them at the end."""

from __future__ import annotations

import random

from generators.recall import OPENINGS, draw_fact
from generators.task import Task, assistant, system_turn, user

CHARS_PER_TOKEN = 3.8
SPAN_TOKENS = (260, 1900)
ENDINGS = ("", "Now answer.", "That was the text.", "Answer this question about the text.")
UNKNOWN = "The text does not say."
UNKNOWN_SHARE = 0.07


def filler_text(rng: random.Random, fillers: list[str], num_chars: float) -> list[str]:
    """Return sentences of ordinary text that are about num_chars long together; runs keep their order."""
    sentences: list[str] = []
    total = 0
    while total < num_chars:
        start = rng.randrange(len(fillers))
        for sentence in fillers[start : start + rng.randint(1, 4)]:
            sentences.append(sentence)
            total += len(sentence) + 1
    return sentences


def make(
    rng: random.Random,
    fillers: list[str],
    num_tokens: int | None = None,
    depth: float | None = None,
    num_facts: int | None = None,
) -> Task:
    """Plant facts and ask for some of them.

    Args:
        rng: source of randomness.
        fillers: ordinary sentences, at least one.
        num_tokens: about how long the conversation is; drawn when None, short ones more often.
        depth: where the fact that is asked for stands, 0 first to 1 last; any place when None.
        num_facts: how many facts; drawn when None. With a depth, one fact and one question.
    """
    if num_tokens is None:
        low, high = SPAN_TOKENS
        num_tokens = int(low * (high / low) ** rng.random())
    if num_facts is None:
        num_facts = rng.choice((1, 2, 3, 4, 6, 8))
    facts: dict[str, tuple[str, str, str, str]] = {}
    while len(facts) < num_facts:
        fact = draw_fact(rng)
        facts[fact[1]] = fact
    planted = list(facts.values())
    num_asked = 1 if depth is not None else min(num_facts, rng.choice((1, 2, 3, 4)))
    lines = filler_text(rng, fillers, max(60.0, CHARS_PER_TOKEN * (num_tokens - 32 * (num_facts + num_asked))))
    asked = rng.sample(planted, num_asked)
    for fact in planted:
        place = rng.randint(0, len(lines))
        if depth is not None and fact is asked[0]:
            place = round(depth * len(lines))
        lines.insert(place, fact[0])
    questions = [(fact[1], fact[2]) for fact in asked]
    if depth is None and rng.random() < UNKNOWN_SHARE:
        other = draw_fact(rng)
        if other[1] not in facts:
            questions.append((other[1], UNKNOWN))
    text = f"{rng.choice(OPENINGS)}\n\n{' '.join(lines)}\n\n{rng.choice(ENDINGS)}".strip()
    messages = system_turn(rng, 0.1)
    if depth is None and rng.random() < 0.3:
        messages += [user(text), assistant("I have read it. What do you want to know?"), user(questions[0][0])]
    else:
        messages += [user(f"{text}\n\n{questions[0][0]}")]
    messages.append(assistant(questions[0][1]))
    for question, answer in questions[1:]:
        messages += [user(question), assistant(answer)]
    return Task("needle", messages, expected=asked[0][3] if depth is not None else "")
