"""Short stories from a small grammar, with facts that stay true, and questions about them.

A plot names its people, places and things once and keeps them. A tale is either written by the model on request, or
given to it to read. Requests and things of HELD_OUT never enter training.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from generators.story_plots import PLOTS
from generators.story_state import follow_things
from generators.task import Task, assistant, system_turn, user
from generators.word_bank import COLORS, FOODS, HE, HELD_OUT_STORY_THINGS, PETS, PLACES, SHE, STORY_THINGS, WEEKDAYS

WEATHERS = ("sunny", "rainy", "windy", "cold", "warm", "cloudy")
REQUESTS = (
    "Tell me a story about {a}.",
    "Write a short story about {a} and {b}.",
    "Tell me a short story about {a} and a {color} {thing}.",
    "Write a story about a {color} {thing}.",
    "Can you tell me a story about {a} and {b}?",
    "Please write a short story about {a}.",
    "Tell me a story that happens on {day}.",
    "I want to hear a story about {a} and {b}.",
    "Tell me a story.",
    "Write a little story about {a} in the {place}.",
)
HELD_OUT_REQUESTS = (
    "Make up a story about {a} and {b}.",
    "Could you write a tale about {a} and a {color} {thing}?",
    "I would love a story about {b} and {a}.",
)
READ = (
    "Read this story.\n\n{text}\n\n{question}",
    "{text}\n\n{question}",
    "Here is a story. {text}\n\nQuestion: {question}",
    "Listen to this story and answer.\n\n{text}\n\n{question}",
)
READY = ("I have read the story. What do you want to know?", "A nice story! What is your question?")


@dataclass(frozen=True)
class Fact:
    """Something a story says: a question, its answer in a sentence, and the words that matter."""

    question: str
    answer: str
    value: str


def draw_fields(rng: random.Random, held_out: bool) -> dict[str, str]:
    """Choose the people, places and things of one story."""
    is_she, is_other_she = rng.random() < 0.5, rng.random() < 0.5
    a = rng.choice(SHE if is_she else HE)
    b = rng.choice([name for name in (SHE if is_other_she else HE) if name != a])
    place, second, third = rng.sample(PLACES, 3)
    return {
        "a": a,
        "b": b,
        "she": "she" if is_she else "he",
        "She": "She" if is_she else "He",
        "her": "her" if is_she else "his",
        "girl": "girl" if is_she else "boy",
        "place": place,
        "second": second,
        "third": third,
        "color": rng.choice(COLORS),
        "thing": rng.choice(HELD_OUT_STORY_THINGS if held_out else STORY_THINGS),
        "pet": rng.choice(PETS),
        "food": rng.choice(FOODS),
        "day": rng.choice(WEEKDAYS),
        "weather": rng.choice(WEATHERS),
        "man": rng.choice(("man", "woman", "farmer", "sailor")),
    }


def with_article(text: str) -> str:
    """Put the right article before the one color that begins with a vowel."""
    return text.replace(" a orange", " an orange")


def tell(rng: random.Random, held_out: bool = False) -> tuple[dict[str, str], str, list[Fact]]:
    """Return the fields, the text and the facts of one story."""
    fields = draw_fields(rng, held_out)
    plot = PLOTS[rng.choice(sorted(PLOTS))]
    sentences = []
    for wordings in plot.sentences:
        wording = rng.choice(wordings)
        if wording:
            sentences.append(with_article(wording.format(**fields)))
    facts = [Fact(*(part.format(**fields) for part in fact)) for fact in plot.facts]
    return fields, " ".join(sentences), facts


def written(rng: random.Random, held_out: bool = False) -> Task:
    """Ask for a story, then now and then about it."""
    fields, text, facts = tell(rng, held_out)
    request = with_article(rng.choice(HELD_OUT_REQUESTS if held_out else REQUESTS).format(**fields))
    messages = [*system_turn(rng, 0.1), user(request), assistant(text)]
    if not held_out:
        for fact in rng.sample(facts, rng.choice((0, 0, 1, 2))):
            messages += [user(fact.question), assistant(fact.answer)]
    return Task("stories", messages)


def read(rng: random.Random, held_out: bool = False) -> Task:
    """Give a story to read and ask about it."""
    if rng.random() < 0.5:
        _, text, facts = tell(rng, held_out)
    else:
        text, found = follow_things(rng, rng.choice((4, 6, 8, 12, 16, 24, 36)))
        facts = [Fact(*fact) for fact in found]
    asked = rng.sample(facts, min(len(facts), 1 if held_out else rng.choice((1, 2, 3))))
    if held_out or rng.random() < 0.6:
        messages = [user(rng.choice(READ).format(text=text, question=asked[0].question)), assistant(asked[0].answer)]
    else:
        messages = [user(f"Read this story.\n\n{text}"), assistant(rng.choice(READY))]
        messages += [user(asked[0].question), assistant(asked[0].answer)]
    for fact in asked[1:]:
        messages += [user(fact.question), assistant(fact.answer)]
    return Task("stories", messages, expected=asked[-1].value)


def make(rng: random.Random, held_out: bool = False) -> Task:
    """Write one story task."""
    return written(rng, held_out) if rng.random() < 0.6 else read(rng, held_out)
