"""Plots of the story grammar: sentences in order, each with its wordings, and what is true in the end.

Fields: people {a} and {b}, {she} {She} {her} {girl} of {a}, three places, {color} {thing}, {pet}, {food}, {day},
{weather}, {man}. An empty wording leaves the sentence out; no fact may rest on such a sentence.
"""

from __future__ import annotations

from dataclasses import dataclass

OPENING = (
    "Once there was a {girl} named {a}.",
    "There was once a {girl} called {a}.",
    "{a} was a kind {girl}.",
)
DAY = ("On {day}, it was {weather}.", "It was a {weather} {day}.")
WHEN = ("On which day does the story happen?", "It happens on {day}.", "{day}")
COLOR = ("What color is the {thing}?", "The {thing} is {color}.", "{color}")
FRIEND = ("Who helps {a}?", "{b} helps {a}.", "{b}")


@dataclass(frozen=True)
class Plot:
    """One kind of story.

    Args:
        sentences: wordings of every sentence.
        facts: (question, answer, value) that hold for every choice of wordings.
    """

    sentences: tuple[tuple[str, ...], ...]
    facts: tuple[tuple[str, str, str], ...]


PLOTS: dict[str, Plot] = {
    "lost": Plot(
        (
            OPENING,
            ("{She} had a {color} {thing} and took it everywhere.", "{She} loved {her} {color} {thing} very much."),
            DAY,
            ("{a} went to the {place} with the {thing}.", "{a} took the {thing} to the {place}."),
            ("When {she} came home, the {thing} was gone.", "In the evening, the {thing} was gone."),
            ("{a} looked in the {second}, but it was not there.", "First {a} looked in the {second}. It was empty."),
            ("Then {she} met {b} and told {b} about it.", "{a} was sad and asked {b} for help."),
            ('{b} said, "I saw it in the {third}."', '"I think it is in the {third}," said {b}.'),
            ("They went to the {third} and found the {thing}.", "Together they found the {thing} in the {third}."),
            ("{a} was happy and thanked {b}.", "{a} thanked {b} and smiled.", "Now {a} was happy again."),
        ),
        (
            ("Where was the {thing}?", "The {thing} was in the {third}.", "{third}"),
            ("Where did {a} look first?", "{a} looked in the {second} first.", "{second}"),
            COLOR,
            FRIEND,
            WHEN,
        ),
    ),
    "gift": Plot(
        (
            OPENING,
            ("The birthday of {b} was on {day}.", "{b} had a birthday on {day}."),
            ("{a} wanted to give {b} something nice.", "{a} wanted to find a gift for {b}."),
            ("{She} went to the {place} and saw a {color} {thing}.", "In the {place}, {she} found a {color} {thing}."),
            ("{a} had only a few coins.", "It cost many coins.", ""),
            ("So {she} worked in the {second} all day.", "{She} helped in the {second} to earn some money."),
            ("Then {she} bought the {thing} for {b}.", "In the evening {she} could buy the {thing}."),
            ('{b} opened the gift and said, "It is beautiful!"', '"Thank you, {a}!" said {b} with a big smile.'),
            ("They ate {food} together and laughed.", "Then they had {food} together."),
        ),
        (
            ("Who gets the {thing}?", "{b} gets the {thing}.", "{b}"),
            ("Where did {a} work?", "{a} worked in the {second}.", "{second}"),
            ("What do they eat?", "They eat {food}.", "{food}"),
            COLOR,
            ("When is the birthday of {b}?", "The birthday of {b} is on {day}.", "{day}"),
        ),
    ),
    "pet": Plot(
        (
            OPENING,
            ("{She} had a small {pet}.", "{a} had a {pet} that liked to play."),
            DAY,
            ("The {pet} ran away from the {place}.", "The door of the {place} was open and the {pet} ran away."),
            ("{a} called and called, but the {pet} did not come.", "{a} was afraid and began to search."),
            ("{She} asked {b} for help.", "{b} came to help {a}."),
            ("They looked in the {second}, but found nothing.", "The {pet} was not in the {second}."),
            ("At last they heard a sound from the {third}.", "Then they went to the {third}."),
            ("The {pet} sat there and ate {food}.", "There was the {pet}, eating {food}."),
            ("{a} took the {pet} home and thanked {b}.", "{a} carried the {pet} home. What a day!"),
        ),
        (
            ("Where was the {pet}?", "The {pet} was in the {third}.", "{third}"),
            ("What did the {pet} eat?", "The {pet} ate {food}.", "{food}"),
            ("Which animal does {a} have?", "{a} has a {pet}.", "{pet}"),
            FRIEND,
            WHEN,
        ),
    ),
    "repair": Plot(
        (
            OPENING,
            ("{She} had an old {color} {thing}.", "{a} had a {color} {thing} from {her} grandmother."),
            DAY,
            ("In the {place}, the {thing} fell and broke.", "{a} dropped the {thing} in the {place} and it broke."),
            ("{a} was very sad.", "{a} did not know what to do.", ""),
            ("{b} worked in the {second} and could repair things.", "{b}, who worked in the {second}, saw it."),
            ('"I can help you," said {b}.', '{b} said, "Give it to me, please."'),
            ("After two hours, the {thing} was as good as new.", "Soon the {thing} was like new."),
            ("{a} brought {b} some {food} to say thank you.", "To say thank you, {a} gave {b} some {food}."),
        ),
        (
            ("Where did the {thing} break?", "It broke in the {place}.", "{place}"),
            ("Where does {b} work?", "{b} works in the {second}.", "{second}"),
            ("What did {a} give to {b}?", "{a} gave {b} some {food}.", "{food}"),
            COLOR,
            FRIEND,
            WHEN,
        ),
    ),
    "trip": Plot(
        (
            ("{a} and {b} were good friends.", "{a} had a good friend named {b}."),
            DAY,
            ("They wanted to see the {place}.", "They planned a trip to the {place}."),
            ("{a} packed some {food} and a {color} {thing}.", "{a} took a {color} {thing} and some {food}."),
            ("On the way they got lost and came to the {second}.", "They took the wrong road to the {second}."),
            ("A friendly {pet} showed them the way.", "They followed a {pet} and found the right road."),
            ("In the {place} they sat down and ate the {food}.", "At last they were in the {place} and ate {food}."),
            ("It was a day to remember.", "They came home tired and happy.", "They talked about it for a long time."),
        ),
        (
            ("Where did they want to go?", "They wanted to go to the {place}.", "{place}"),
            ("Where did they come by mistake?", "They came to the {second}.", "{second}"),
            ("Which animal showed them the way?", "A {pet} showed them the way.", "{pet}"),
            ("What did they eat?", "They ate {food}.", "{food}"),
            COLOR,
            WHEN,
        ),
    ),
    "secret": Plot(
        (
            OPENING,
            ("One day {she} found a {color} {thing} in the {place}.", "In the {place}, {she} found a {color} {thing}."),
            ("A small note was on it.", "It came with a small note."),
            ('The note said, "Bring me to the {second} on {day}."', 'It said, "Come to the {second} on {day}."'),
            ("{a} told only {b} about it.", "{a} showed it to {b}."),
            ("On {day} they went there together.", "They could not wait and went there on {day}."),
            ("An old {man} stood there and smiled.", "There they met an old {man}."),
            ('"You found my {thing}!" said the old {man}.', 'The old {man} said, "That is my {thing}!"'),
            ("They all ate {food} and became friends.", "The old {man} gave them {food}, and they became friends."),
        ),
        (
            ("Where did {a} find the {thing}?", "{a} found it in the {place}.", "{place}"),
            ("Where did they bring the {thing}?", "They brought it to the {second}.", "{second}"),
            ("Who owns the {thing}?", "An old {man} owns the {thing}.", "{man}"),
            COLOR,
            WHEN,
        ),
    ),
}
