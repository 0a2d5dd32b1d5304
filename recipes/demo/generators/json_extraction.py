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
    PET_NAMES,
    PETS,
    PLACES,
    SHOP_THINGS,
    WEEKDAYS,
    draw_name,
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
# Clauses about one field each, for every subject; texts of several fields are put together from them. The blank stands
# for the subject, which is the name the first time and may be a pronoun later.
CLAUSES: dict[str, tuple[str, ...]] = {
    "age": ("_ is {age} years old.", "_ is {age}.", "_ turned {age} this year.", "The age of _ is {age}."),
    "city": (
        "_ lives in {city}.",
        "_ comes from {city}.",
        "_ moved to {city}.",
        "The home of _ is in {city}.",
        "_ is at home in {city}.",
    ),
    "job": ("_ works as a {job}.", "_ is a {job}.", "_ earns money as a {job}.", "The job of _ is {job}."),
    "hobby": (
        "_ likes {hobby}.",
        "_ loves {hobby}.",
        "The hobby of _ is {hobby}.",
        "In the evening _ spends time with {hobby}.",
        "_ is fond of {hobby}.",
        "For fun, _ does some {hobby}.",
    ),
    "pet": ("_ has a {pet}.", "_ owns a {pet}.", "At home _ keeps a {pet}.", "The pet of _ is a {pet}."),
    "place": ("_ often visits the {place}.", "_ was last seen in the {place}.", "_ waits in the {place}."),
    "day": ("_ is free on {day}.", "_ arrives on {day}.", "We see _ on {day}.", "On {day}, _ will call."),
}
ORDERS: dict[str, tuple[str, ...]] = {
    "count": ("We need {count} of them.", "The number is {count}.", "Please pack {count} pieces.", "Count: {count}."),
    "item": ("The customer wants a {item}.", "This is about a {item}.", "The article is a {item}.", "Item: {item}."),
    "color": ("It should be {color}.", "The color is {color}.", "In {color}, please.", "Color: {color}."),
    "price": (
        "It costs {price} dollars.",
        "The price is {price} dollars.",
        "Price: {price}.",
        "We pay {price} dollars.",
    ),
    "city": ("Send it to {city}.", "The address is in {city}.", "It goes to {city}.", "City: {city}."),
    "day": ("It must be there on {day}.", "The day is {day}.", "We expect it on {day}.", "Day: {day}."),
    "name": ("The buyer is {name}.", "It was ordered by {name}.", "{name} placed the order.", "Name: {name}."),
    "hour": ("Come at {hour}.", "The hour is {hour}.", "We start at {hour}.", "Hour: {hour}."),
    "place": ("Leave it in the {place}.", "The place is the {place}.", "It belongs to the {place}.", "Place: {place}."),
}
CLAUSE_SHARE = 0.65
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
        "name": draw_name(rng),
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


def put_together(rng: random.Random) -> tuple[str, tuple[str, ...]]:
    """Return a pattern of two to four clauses and its fields, in the order in which they stand there."""
    if rng.random() < 0.5:
        fields = rng.sample(sorted(ORDERS), rng.randint(2, 4))
        return " ".join(rng.choice(ORDERS[field]) for field in fields), tuple(fields)
    fields = rng.sample(sorted(CLAUSES), rng.randint(1, 4))
    pronoun = rng.choice(("{name}", "He", "She"))
    sentences: list[str] = []
    for field in fields:
        clause = rng.choice(CLAUSES[field])
        sentences.append(clause.replace("_", pronoun if sentences and clause.startswith("_") else "{name}"))
    return " ".join(sentences), ("name", *fields)


def make(rng: random.Random, held_out: bool = False) -> Task:
    """Write one extraction."""
    if not held_out and rng.random() < CLAUSE_SHARE:
        pattern, fields = put_together(rng)
    else:
        pattern, fields = rng.choice(HELD_OUT if held_out else TRAIN)
    values = fill(rng)
    keys = list(fields)
    if rng.random() < 0.4:
        keys = rng.sample(keys, rng.randint(1, len(keys)))
    request = rng.choice(REQUESTS).format(keys=list_words(keys), text=pattern.format(**values))
    reply = json.dumps({key: values[key] for key in keys})
    return Task("json", [*system_turn(rng), user(request), assistant(reply)], expected=reply)
