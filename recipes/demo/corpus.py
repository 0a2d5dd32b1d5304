"""Read the training text and mix it with generated tasks into documents in the chat format."""

from __future__ import annotations

import json
import lzma
import random
import re
from collections.abc import Iterator
from pathlib import Path

from chat_format import DOCUMENT_START, render
from generators import json_extraction, needle, recall, small_talk, stories, tool_use, word_problems
from generators.task import assistant, system_turn, user

# Share of each source of documents that is used; 1.0 is all of it.
DOCUMENT_SHARES = {
    "wordnet": 0.6,
    "bible-web": 0.5,
    "factbook": 0.5,
    "python-docs": 0.5,
    "python-stdlib": 0.25,
    "django": 0.4,
    "nodejs": 0.25,
    "postgresql": 0.4,
    "rust": 0.5,
    "sqlite": 0.5,
}
# Generated tasks for every 1,000 teacher chats, by kind. Reasons: the table in README.md.
TASKS_PER_1000_CHATS = {
    "word": 520,
    "json": 330,
    "talk": 170,
    "recall": 160,
    "stories": 260,
    "tools": 80,
    "chats": 120,
}
NEEDLES_PER_1000_CHATS = 90
CHAT_THOUGHT_SHARE = 0.08
# The teacher's own small talk, which is odd ("What brings you to my office today?"); small_talk.py has better.
TEACHER_SMALL_TALK = re.compile(
    r"(hello|hi|hey|good (morning|afternoon|evening|night|day)|thanks?|nice to|see you|bye|goodbye|my name|i am|i'm|"
    r"i feel|i had|i have|i want|i need|i will|we are|are you|who are you|how are you|how was your|how do you do|"
    r"what is your|what do you (like|do)|do you (like|have)|can you help|can i ask|tell me (a joke|about yourself))\b",
    re.IGNORECASE,
)


def read_rows(path: Path) -> Iterator[dict[str, str]]:
    """Yield the rows of one packed file."""
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def read_chats(folder: Path, part: str, start: int, stride: int) -> Iterator[tuple[str, str]]:
    """Yield (question, answer) of every `stride`-th chat row from `start`, but no small talk.

    Args:
        folder: folder with the packed data files.
        part: `train` or `heldout`.
        start: first row.
        stride: distance of rows.
    """
    number = 0
    paths = sorted(folder.glob(f"chat-{part}*.jsonl.xz"))
    if not paths:
        raise FileNotFoundError(f"no chat-{part}*.jsonl.xz in {folder}; give the folder that holds the data files")
    for path in paths:
        with lzma.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                if number % stride == start:
                    row = json.loads(line)
                    if not TEACHER_SMALL_TALK.match(row["q"]):
                        yield row["q"], row["a"]
                number += 1


def read_documents(folder: Path, start: int, stride: int) -> Iterator[str]:
    """Yield every `stride`-th documentation text from `start`, thinned by DOCUMENT_SHARES."""
    number = 0
    for path in sorted(folder.glob("docs-*.jsonl.xz")):
        share = DOCUMENT_SHARES[path.name.removeprefix("docs-").removesuffix(".jsonl.xz")]
        for row in read_rows(path):
            number += 1
            if number % stride == start and (number // stride) % 100 < share * 100:
                yield row["text"]


def split_sentences(text: str) -> list[str]:
    """Split an answer into sentences of a useful length for fillers."""
    parts = re.split(r"(?<=[.!?])\s+", text.replace("\n", " "))
    return [part for part in parts if 20 <= len(part) <= 120]


def generate(rng: random.Random, kind: str, fillers: list[str], chats: list[tuple[str, str]]) -> str:
    """Write one generated document: a kind named in TASKS_PER_1000_CHATS, or a needle."""
    if kind == "word":
        return word_problems.make(rng).document()
    if kind == "json":
        return json_extraction.make(rng).document()
    if kind == "talk":
        return small_talk.make(rng).document()
    if kind == "recall":
        return recall.make(rng, fillers).document()
    if kind == "stories":
        return stories.make(rng).document()
    if kind == "needle":
        return needle.make(rng, fillers).document()
    if kind == "tools":
        return tool_use.make(rng).document()
    messages = system_turn(rng)
    for question, reply in rng.sample(chats, rng.randint(2, 3)):
        messages += [user(question), assistant(reply)]
    for task in rng.sample((word_problems, json_extraction), 1):
        turns = [turn for turn in task.make(rng).messages if turn["role"] != "system"]
        messages = messages + turns if rng.random() < 0.5 else messages
    return render(messages)


def generated_documents(rng: random.Random, count: int, fillers: list[str]) -> Iterator[str]:
    """Yield generated documents that need no teacher chats."""
    kinds = [kind for kind in TASKS_PER_1000_CHATS if kind != "chats"]
    weights = [TASKS_PER_1000_CHATS[kind] for kind in kinds]
    for kind in rng.choices(kinds, weights, k=count):
        yield generate(rng, kind, fillers, [])


def chat_document(rng: random.Random, question: str, reply: str) -> str:
    """Print one teacher chat, now and then with a system turn or a short thought."""
    thought = "The user asks something simple. I answer briefly." if rng.random() < CHAT_THOUGHT_SHARE else None
    return render([*system_turn(rng, 0.15), user(question), assistant(reply, thought)])


def ordinary_sentences(rng: random.Random, chats: list[tuple[str, str]], documents: list[str]) -> list[str]:
    """Return sentences to hide facts between: answers of the teacher, some stories, some documentation."""
    pool = rng.sample(chats, min(len(chats), 8000))
    sentences = [sentence for _, reply in pool for sentence in split_sentences(reply)]
    for _ in range(len(pool) // 20):
        sentences += split_sentences(stories.tell(rng)[1])
    for text in rng.sample(documents, min(len(documents), len(pool) // 80)):
        sentences += split_sentences(text[:2000])
    return sentences


def training_documents(
    folder: Path, part: int, num_parts: int, seed: int, limit: int | None = None
) -> tuple[list[str], list[str]]:
    """Return one part of the shuffled training mix as texts: the mix itself, and needles in long text.

    Args:
        folder: folder with the packed data files.
        part: which part, from 0.
        num_parts: how many parts there are; every row is in exactly one.
        seed: seed of generation and order.
        limit: most teacher chats to use, for trial runs.
    """
    rng = random.Random(f"{seed}-{part}")
    chats = []
    for chat in read_chats(folder, "train", part, num_parts):
        chats.append(chat)
        if limit is not None and len(chats) >= limit:
            break
    plain = list(read_documents(folder, part, num_parts)) if limit is None else []
    fillers = ordinary_sentences(rng, chats, plain)
    texts = [chat_document(rng, question, reply) for question, reply in chats]
    for kind, per_thousand in TASKS_PER_1000_CHATS.items():
        texts += [generate(rng, kind, fillers, chats) for _ in range(len(chats) * per_thousand // 1000)]
    needles = [generate(rng, "needle", fillers, chats) for _ in range(len(chats) * NEEDLES_PER_1000_CHATS // 1000)]
    texts += [DOCUMENT_START + text for text in plain]
    rng.shuffle(texts)
    return texts, needles
