"""The programs that write training conversations: seeded, right by construction, and held-out forms stay out."""

from __future__ import annotations

import support.demo_recipe  # noqa: F401

# isort: split
import json
import random
import re
from collections.abc import Callable

import pytest
from corpus import TEACHER_SMALL_TALK, split_sentences
from generators import json_extraction, needle, recall, small_talk, stories, tool_use, word_problems
from generators.story_plots import PLOTS
from generators.story_state import follow_things
from generators.task import Task
from generators.word_bank import HELD_OUT_STORY_THINGS

from slipstream.demo import demo_path
from slipstream.text.tokenizer import Tokenizer

FILLERS = split_sentences(
    "The river runs slowly through the old town. Many people like to walk there in the evening, when the air is cool. "
    "A good meal needs time and fresh things from the market. Books help us to understand other people and their lives."
)
CONTEXT = 2048
MAKERS: dict[str, Callable[[random.Random], Task]] = {
    "json": json_extraction.make,
    "needle": lambda rng: needle.make(rng, FILLERS),
    "recall": lambda rng: recall.make(rng, FILLERS),
    "small_talk": small_talk.make,
    "stories": stories.make,
    "tools": tool_use.make,
    "word_problems": word_problems.make,
}


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_a_seed_decides_what_is_written(name: str) -> None:
    def draw(seed: int) -> list[str]:
        rng = random.Random(seed)
        return [MAKERS[name](rng).document() for _ in range(20)]

    assert draw(4) == draw(4)
    assert draw(4) != draw(5)


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_no_field_of_a_wording_is_left_open(name: str) -> None:
    rng = random.Random(8)
    texts = [str(turn["content"]) for _ in range(400) for turn in MAKERS[name](rng).messages]
    assert not [text for text in texts if re.search(r"(?<!\S)\{\w+\}|\{(a|b|thing|place|name)\}", text)]


def test_the_steps_of_a_word_problem_lead_to_its_answer() -> None:
    rng = random.Random(1)
    for index in range(400):
        task = word_problems.make(rng, held_out=index % 4 == 0)
        reply = task.messages[-1]
        steps = re.findall(r"(\d+) ([-+*/]) (\d+) = (\d+)", reply.get("reasoning_content") or reply["content"])
        assert steps
        for left, sign, right, result in steps:
            x, y = int(left), int(right)
            assert int(result) == {"+": x + y, "-": x - y, "*": x * y, "/": x / max(y, 1)}[sign]
        assert steps[-1][3] == task.expected
        assert re.findall(r"\d+", reply["content"])[-1] == task.expected


def test_json_holds_what_the_text_says() -> None:
    rng = random.Random(2)
    for index in range(400):
        task = json_extraction.make(rng, held_out=index % 4 == 0)
        request = task.messages[-2]["content"]
        values = json.loads(task.expected)
        assert values
        assert all(re.search(rf"\b{re.escape(str(value))}", request) for value in values.values())
        assert all(re.search(rf"\b{key}\b", request) for key in values)


@pytest.mark.parametrize("plot", sorted(PLOTS))
def test_a_fact_of_a_plot_rests_on_sentences_that_are_never_left_out(plot: str) -> None:
    """Every field of a fact's value stands in all wordings of some sentence."""
    for _, _, value in PLOTS[plot].facts:
        assert any(all(value in wording for wording in wordings) for wordings in PLOTS[plot].sentences), value


def test_a_story_says_what_its_questions_ask_about() -> None:
    rng = random.Random(3)
    for _ in range(300):
        _, text, facts = stories.tell(rng)
        assert len(split_sentences(text)) + text.count('"') >= 5
        for fact in facts:
            assert fact.value in text
            assert fact.value in fact.answer


def walk(text: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return where people and things are in the end: an own reading of the sentences."""
    at: dict[str, str] = {}
    held: dict[str, str] = {}
    lies: dict[str, str] = {}
    for sentence in text.removesuffix(".").split(". "):
        moved = re.fullmatch(r"(?:Then )?(\w+) (?:went|walked) to the (\w+)", sentence)
        began = re.fullmatch(r"(The )?(.+) was in the (\w+)", sentence)
        took = re.fullmatch(r"(\w+) (?:took|picked up) the (.+)", sentence)
        left = re.fullmatch(r"(\w+) (?:left the (.+) there|put down the (.+))", sentence)
        gave = re.fullmatch(r"(\w+) gave the (.+) to (\w+)", sentence)
        if moved:
            at[moved[1]] = moved[2]
        elif began:
            (lies if began[1] else at)[began[2]] = began[3]
        elif took:
            assert lies.pop(took[2]) == at[took[1]]
            held[took[2]] = took[1]
        elif left:
            thing = left[2] or left[3]
            assert held.pop(thing) == left[1]
            lies[thing] = at[left[1]]
        else:
            assert gave, sentence
            assert held[gave[2]] == gave[1]
            assert at[gave[1]] == at[gave[3]]
            held[gave[2]] = gave[3]
    things = lies | {thing: at[who] for thing, who in held.items()}
    return at | things, held


def test_things_that_are_followed_are_where_an_own_reading_finds_them() -> None:
    rng = random.Random(4)
    for _ in range(200):
        text, facts = follow_things(rng, 20)
        places, held = walk(text)
        for question, answer, value in facts:
            assert value in answer
            name = re.fullmatch(r"(?:Where is|Who has) (?:the )?(.+?)(?: now)?\?", question)
            assert name
            assert (held if question.startswith("Who") else places)[name[1]] == value


@pytest.mark.parametrize("depth", [0.0, 0.5, 1.0])
def test_a_needle_stands_at_the_depth_that_was_asked_for(depth: float) -> None:
    rng = random.Random(5)
    for _ in range(30):
        task = needle.make(rng, FILLERS, 900, depth, num_facts=1)
        text, sentence = task.messages[-2]["content"], task.messages[-1]["content"]
        begin = text.index("\n\n") + 2
        found = (text.index(sentence) - begin) / (text.rindex("\n\n") - begin)
        assert found == pytest.approx(depth, abs=0.12)
        assert task.expected in sentence


def test_needles_fit_the_context_and_many_outgrow_the_selected_blocks() -> None:
    tokenizer = Tokenizer.load(demo_path())
    rng = random.Random(6)
    lengths = [len(tokenizer.encode(needle.make(rng, FILLERS).document())) for _ in range(250)]
    assert max(lengths) <= CONTEXT
    assert sum(length > 512 for length in lengths) > len(lengths) // 2


def test_what_a_needle_text_does_not_say_is_not_planted() -> None:
    rng = random.Random(7)
    unknown = 0
    for _ in range(400):
        turns = needle.make(rng, FILLERS).messages
        if turns[-1]["content"] == needle.UNKNOWN:
            unknown += 1
            name = re.search(r"of the (.+)\?|(?:of|is|does) (\w+)", turns[-2]["content"])
            assert name
        else:
            assert any(turns[-1]["content"] in str(turn["content"]) for turn in turns[:-1] if turn["role"] == "user")
    assert unknown > 5


def test_held_out_wordings_of_small_talk_are_not_trained_on() -> None:
    trained = {wording for asked, _ in small_talk.INTENTS.values() for wording in asked}
    assert not trained & {wording for wordings in small_talk.HELD_OUT.values() for wording in wordings}


def test_held_out_requests_and_things_of_stories_are_not_trained_on() -> None:
    rng = random.Random(9)
    trained = " ".join(stories.make(rng).document() for _ in range(1500))
    new = " ".join(stories.make(rng, held_out=True).document() for _ in range(200))
    openings = [request.split("{")[0] for request in stories.HELD_OUT_REQUESTS]
    for words in [*openings, *HELD_OUT_STORY_THINGS]:
        assert words not in trained
        assert words in new


def test_held_out_templates_of_problems_and_json_are_not_trained_on() -> None:
    rng = random.Random(10)
    problems = " ".join(word_problems.make(rng).document() for _ in range(3000))
    extractions = " ".join(json_extraction.make(rng).document() for _ in range(3000))
    for words in ("collects", "The wind blows", "rows of flowers", "for lunch", r"carries \d+ \w+ with"):
        assert not re.search(words, problems)
    for words in (" enjoys ", " opens on ", "that belongs to"):
        assert words not in extractions


@pytest.mark.parametrize(
    ("question", "is_small_talk"),
    [
        ("Hello, how are you?", True),
        ("I am Nina. Nice to meet you!", True),
        ("Good night!", True),
        ("What is a bridge?", False),
        ("History is what?", False),
        ("Why are bats useful?", False),
    ],
)
def test_the_teachers_small_talk_is_told_from_its_explanations(question: str, is_small_talk: bool) -> None:
    assert bool(TEACHER_SMALL_TALK.match(question)) == is_small_talk
