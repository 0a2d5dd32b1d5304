"""Greetings, thanks, questions about the model itself, and honest refusals.

Each intent has wordings for training and others, in HELD_OUT, that only evaluation uses.
"""

from __future__ import annotations

import random

from generators.small_talk_wordings import HELD_OUT, INTENTS
from generators.task import Task, assistant, system_turn, user
from generators.word_bank import draw_name

INTRODUCTIONS = (
    "My name is {}.",
    "I am {}.",
    "Hi, I am {}.",
    "Hello, my name is {}.",
    "I am {}. Nice to meet you!",
    "Good morning, I am {}. How are you?",
    "Hello! {} is my name.",
    "You can call me {}.",
    "They call me {}.",
    "Hey, this is {}.",
)
GREETINGS = ("Hello! ", "Hi! ", "Hi, ", "Hello, ", "Hey, ", "Good morning! ", "Good evening! ", "Okay. ", "Please: ")
THOUGHTS = {
    "greet": "The user greets me. I greet back.",
    "thanks": "The user thanks me. I answer kindly.",
    "bye": "The user says goodbye.",
    "name": "The user asks who I am.",
    "maker": "The user asks where I come from.",
}


def maybe_thought(rng: random.Random, intent: str) -> str | None:
    """Return a short thought for a share of the conversations."""
    return THOUGHTS.get(intent, "A simple question. I answer briefly.") if rng.random() < 0.25 else None


def ask(rng: random.Random, intent: str) -> str:
    """Return a wording of an intent, now and then behind a greeting, in lower case or without its last mark."""
    text = rng.choice(INTENTS[intent][0])
    if "?" in text and rng.random() < 0.15:
        text = rng.choice(GREETINGS) + text
    if rng.random() < 0.1:
        text = text.lower()
    return text.rstrip(".!?") if rng.random() < 0.1 else text


def remember_name(rng: random.Random) -> Task:
    """Write a chat in which the user's name is told and asked later."""
    name = draw_name(rng)
    messages = [
        *system_turn(rng),
        user(rng.choice(INTRODUCTIONS).format(name)),
        assistant(f"Nice to meet you, {name}! How can I help you?"),
    ]
    for intent in rng.sample(sorted(INTENTS), rng.randint(0, 2)):
        messages += [user(ask(rng, intent)), assistant(rng.choice(INTENTS[intent][1]))]
    messages += [
        user(rng.choice(("What is my name?", "Do you remember my name?", "Who am I?"))),
        assistant(f"Your name is {name}."),
    ]
    return Task("small_talk", messages, expected=name)


def unknown_person(rng: random.Random) -> Task:
    """Ask about a person whom nobody mentioned."""
    name = draw_name(rng)
    asked = rng.choice(("Who is {}?", "Do you know {}?", "What is the phone number of {}?", "How old is {}?"))
    reply = f"I do not know {name}. You have not told me about {name}."
    return Task("small_talk", [*system_turn(rng), user(asked.format(name)), assistant(reply)])


def make(rng: random.Random, held_out: bool = False) -> Task:
    """Write one to three turns of small talk."""
    if held_out:
        intent = rng.choice(sorted(HELD_OUT))
        return Task("small_talk", [user(rng.choice(HELD_OUT[intent])), assistant(INTENTS[intent][1][0])])
    if rng.random() < 0.2:
        return remember_name(rng) if rng.random() < 0.75 else unknown_person(rng)
    messages = system_turn(rng)
    for intent in rng.sample(sorted(INTENTS), rng.choice((1, 1, 1, 2, 3))):
        reply = rng.choice(INTENTS[intent][1])
        messages += [user(ask(rng, intent)), assistant(reply, maybe_thought(rng, intent))]
    return Task("small_talk", messages)
