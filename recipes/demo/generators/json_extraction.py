"""Turn a sentence into JSON with the asked keys."""

from __future__ import annotations

import json
import random

from generators.task import Task, assistant, system_turn, user
from generators.word_bank import (
    CITIES,
    COLORS,
    HOBBIES,
    JOBS,
    NAMES,
    PET_NAMES,
    PETS,
    PLACES,
    SHOP_THINGS,
    WEEKDAYS,
)

TRAIN = (
    ("{name} is {age} years old and lives in {city}.", ("name", "age", "city")),
    ("My friend {name} lives in {city} and works as a {job}.", ("name", "city", "job")),
    ("{name} is a {job}. {name} is {age} and likes {hobby}.", ("name", "job", "age", "hobby")),
    ("In {city} there is a {job} called {name}, who is {age} years old.", ("city", "job", "name", "age")),
    ("{name} bought {count} {item}s for {price} dollars.", ("name", "count", "item", "price")),
    ("Please send {count} {color} {item}s to {city}.", ("count", "color", "item", "city")),
    ("The order is for {name}: {count} {item}s, {color}.", ("name", "count", "item", "color")),
    ("We meet on {day} at {hour} in the {place}.", ("day", "hour", "place")),
    ("{name} has a {pet} named {pet_name}.", ("name", "pet", "pet_name")),
    ("The {pet} {pet_name} is {age} years old and {color}.", ("pet", "pet_name", "age", "color")),
    ("On {day}, {name} goes to the {place} in {city}.", ("day", "name", "place", "city")),
    ("A {color} {item} costs {price} dollars in the {place}.", ("color", "item", "price", "place")),
)
HELD_OUT = (
    ("{name}, a {job} from {city}, enjoys {hobby}.", ("name", "job", "city", "hobby")),
    ("{name} needs {count} {item}s by {day}.", ("name", "count", "item", "day")),
    ("The {place} opens on {day} at {hour}.", ("place", "day", "hour")),
    ("{pet_name} is a {color} {pet} that belongs to {name}.", ("pet_name", "color", "pet", "name")),
)
REQUESTS = (
    "Extract {keys} as JSON.\n\n{text}",
    "Write {keys} as JSON: {text}",
    "{text}\n\nGive me {keys} as a JSON object.",
    "Read this text and return JSON with {keys}.\n\n{text}",
    "Turn this into JSON with the keys {keys}: {text}",
)


def list_words(words: list[str]) -> str:
    """Join words with commas and `and`."""
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


def fill(rng: random.Random) -> dict[str, str | int]:
    """Draw one value for every field."""
    return {
        "name": rng.choice(NAMES),
        "age": rng.randint(2, 90),
        "city": rng.choice(CITIES),
        "job": rng.choice(JOBS),
        "hobby": rng.choice(HOBBIES),
        "count": rng.randint(2, 60),
        "item": rng.choice(SHOP_THINGS),
        "price": rng.randint(2, 99),
        "color": rng.choice(COLORS),
        "day": rng.choice(WEEKDAYS),
        "hour": rng.randint(1, 12),
        "place": rng.choice(PLACES),
        "pet": rng.choice(PETS),
        "pet_name": rng.choice(PET_NAMES),
    }


def make(rng: random.Random, held_out: bool = False) -> Task:
    """Write one extraction."""
    pattern, fields = rng.choice(HELD_OUT if held_out else TRAIN)
    values = fill(rng)
    keys = list(fields)
    if rng.random() < 0.4:
        keys = rng.sample(keys, rng.randint(1, len(keys)))
    request = rng.choice(REQUESTS).format(keys=list_words(keys), text=pattern.format(**values))
    reply = json.dumps({key: values[key] for key in keys})
    return Task("json", [*system_turn(rng), user(request), assistant(reply)], expected=reply)
