"""Follow people and things from place to place: text whose last state answers questions."""

from __future__ import annotations

import random

from generators.word_bank import COLORS, NAMES, PLACES, STORY_THINGS

GOES = ("{who} went to the {place}.", "{who} walked to the {place}.", "Then {who} went to the {place}.")
TAKES = ("{who} took the {thing}.", "{who} picked up the {thing}.")
LEAVES = ("{who} left the {thing} there.", "{who} put down the {thing}.")
GIVES = ("{who} gave the {thing} to {other}.",)
COLOR_SHARE = 0.3


def follow_things(rng: random.Random, num_events: int) -> tuple[str, list[tuple[str, str, str]]]:
    """Move two or three people and one to three things around.

    Args:
        rng: source of randomness.
        num_events: how many sentences follow the opening ones.

    Returns:
        The text, and (question, answer, value) of what is true at its end.
    """
    people = rng.sample(NAMES, rng.choice((2, 2, 3)))
    places = rng.sample(PLACES, 4)
    things = rng.sample(STORY_THINGS, rng.choice((1, 2, 3)))
    things = [f"{rng.choice(COLORS)} {thing}" if rng.random() < COLOR_SHARE else thing for thing in things]
    at = {who: rng.choice(places) for who in people}
    lies_in = {thing: rng.choice(places) for thing in things}
    holder: dict[str, str | None] = dict.fromkeys(things)
    lines = [f"{who} was in the {at[who]}." for who in people]
    lines += [f"The {thing} was in the {lies_in[thing]}." for thing in things]
    for _ in range(num_events):
        who = rng.choice(people)
        held = [thing for thing in things if holder[thing] == who]
        near = [thing for thing in things if holder[thing] is None and lies_in[thing] == at[who]]
        others = [other for other in people if other != who and at[other] == at[who]]
        chance = rng.random()
        if near and chance < 0.5:
            thing = rng.choice(near)
            holder[thing] = who
            lines.append(rng.choice(TAKES).format(who=who, thing=thing))
        elif held and others and chance < 0.6:
            thing, other = rng.choice(held), rng.choice(others)
            holder[thing] = other
            lines.append(rng.choice(GIVES).format(who=who, thing=thing, other=other))
        elif held and chance < 0.7:
            thing = rng.choice(held)
            holder[thing], lies_in[thing] = None, at[who]
            lines.append(rng.choice(LEAVES).format(who=who, thing=thing))
        else:
            at[who] = rng.choice([place for place in places if place != at[who]])
            lines.append(rng.choice(GOES).format(who=who, place=at[who]))
    facts = [(f"Where is {who} now?", f"{who} is in the {at[who]}.", at[who]) for who in people]
    for thing in things:
        owner = holder[thing]
        place = lies_in[thing] if owner is None else at[owner]
        facts.append((f"Where is the {thing} now?", f"The {thing} is in the {place}.", place))
        if owner is not None:
            facts.append((f"Who has the {thing}?", f"{owner} has the {thing}.", owner))
    return " ".join(lines), facts
