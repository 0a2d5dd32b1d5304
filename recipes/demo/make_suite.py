"""Write the evaluation suite: held-out texts, problems, facts and prompts, and a training sample for n-gram models.

    python make_suite.py DATA_FOLDER src/slipstream/demo/evaluation/suite.jsonl.xz

Domains are those that the generators offer: every module of `generators` with a function `make`. A domain `X` has the
forms that training saw, filled anew; `X, new forms` the forms, wordings or things that it did not see. Chats are those
about held-out nouns, documents those that training passes over with any of STRIDES workers.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import lzma
import pkgutil
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import generators
from chat_format import render
from corpus import DOCUMENT_SHARES, read_chats, read_rows, split_sentences
from generators import recall, word_problems
from generators.task import Task, assistant, user

VERSION = 1
SEED = 2027
NEW_FORMS = ", new forms"
STRIDES = (1, 2, 4, 6, 8, 10, 12, 14, 16)
TRAIN_CHARS = {"chat": 170_000, "documents": 250_000}
TRAIN_CHARS_OF_A_DOMAIN = 62_000
NUM_TEXTS = 100
NUM_PROBLEMS = 500
NUM_PROMPTS = {"chat": 160}
NUM_PROMPTS_OF_A_DOMAIN = 85
NUM_NEEDLES, NUM_FACTS = 40, 4
NUM_FILLERS = 500
MAX_PROMPT_CHARS = 2000
MAX_TEXT_CHARS = 5000
MAX_OPENING_CHARS = 300
NUM_ROUNDS = 600
TRIES = 40
NOTICES = (
    "Generated conversations: Apache-2.0, this project.",
    "Chats: answers by SmolLM2-135M-Instruct (Apache-2.0) to questions from templates.",
    "Documents: permissive licences or public domain; see src/slipstream/demo/LICENSES.md.",
)
Make = Callable[[random.Random], Task]


def find_makers(fillers: list[str]) -> Iterator[tuple[Make, Make | None]]:
    """Yield, per generator, what writes a task in known forms, and in new ones if it has some."""
    for found in pkgutil.iter_modules(generators.__path__):
        make = getattr(importlib.import_module(f"generators.{found.name}"), "make", None)
        if make is None:
            continue
        names = inspect.signature(make).parameters
        given = {"fillers": fillers} if "fillers" in names else {}
        known: Make = partial(make, **given)
        new: Make = partial(make, **given, held_out=True)
        yield known, new if "held_out" in names else None


def rounds(makers: list[tuple[Make, Make | None]], rng: random.Random) -> Iterator[tuple[str, Task]]:
    """Yield (domain, task) of all domains in turn, some hundred times."""
    for _ in range(NUM_ROUNDS):
        for known, new in makers:
            task = known(rng)
            yield task.domain, task
            if new is not None:
                task = new(rng)
                yield task.domain + NEW_FORMS, task


def sort_documents(folder: Path) -> tuple[list[tuple[str, str]], dict[str, list[str]]]:
    """Return the (source, text) of documents that training passes over, and those of each source that it may use."""
    held_out: dict[str, str] = {}
    used: dict[str, list[str]] = {}
    number = 0
    for path in sorted(folder.glob("docs-*.jsonl.xz")):
        source = path.name.removeprefix("docs-").removesuffix(".jsonl.xz")
        for row in read_rows(path):
            # As `corpus.read_documents` counts.
            number += 1
            if any((number // stride) % 100 < 100 * DOCUMENT_SHARES[source] for stride in STRIDES):
                used.setdefault(source, []).append(cut(row["text"]))
            else:
                held_out[cut(row["text"])] = source
    known = {text for texts in used.values() for text in texts}
    return [(source, text) for text, source in held_out.items() if text not in known], used


def document_rows(
    held_out: list[tuple[str, str]], used: dict[str, list[str]], rng: random.Random
) -> Iterator[dict[str, Any]]:
    """Yield held-out documents, a training sample of the same sources, and beginnings to go on with.

    A model without the demo's chat template can be asked these, too.
    """
    chosen = rng.sample(held_out, min(len(held_out), NUM_TEXTS))
    for _, text in chosen:
        yield {"kind": "text", "split": "test", "domain": "documents", "text": text}
    num_chars = 0
    while num_chars < TRAIN_CHARS["documents"]:
        text = rng.choice(used[rng.choice(chosen)[0]])
        num_chars += len(text)
        yield {"kind": "text", "split": "train", "domain": "documents", "text": text}
    for _, text in rng.sample(held_out, min(len(held_out), NUM_PROMPTS_OF_A_DOMAIN)):
        yield {"kind": "prompt", "domain": "documents", "text": text[:MAX_OPENING_CHARS].rpartition(" ")[0]}


def cut(text: str) -> str:
    """Cut a long text at the end of a line."""
    return text if len(text) <= MAX_TEXT_CHARS else text[:MAX_TEXT_CHARS].rpartition("\n")[0] or text[:MAX_TEXT_CHARS]


def dialogue(split: str, domain: str, task: Task) -> dict[str, Any]:
    """Return a whole conversation as a row."""
    row = {"kind": "dialogue", "split": split, "domain": domain, "messages": task.messages}
    return row | ({"tools": task.tools} if task.tools else {})


def prompt(domain: str, task: Task) -> dict[str, Any]:
    """Return a conversation up to its answer as a row."""
    row = {"kind": "prompt", "domain": domain, "messages": task.messages[:-1], "thinking_mode": task.thinking_mode}
    return row | ({"tools": task.tools} if task.tools else {})


def training_rows(chats: list[Task], makers: list[tuple[Make, Make | None]], rng: random.Random) -> Iterator[Task]:
    """Yield the conversations of the training sample: known forms only, so many characters of each domain."""
    counts: dict[str, int] = {}
    tasks = [*chats, *(task for domain, task in rounds(makers, rng) if NEW_FORMS not in domain)]
    for task in tasks:
        if counts.get(task.domain, 0) < TRAIN_CHARS.get(task.domain, TRAIN_CHARS_OF_A_DOMAIN):
            counts[task.domain] = counts.get(task.domain, 0) + len(task.document())
            yield task


def text_rows(
    chats: dict[str, list[Task]], makers: dict[str, list[tuple[Make, Make | None]]], rng: random.Random
) -> Iterator[dict[str, Any]]:
    """Yield the training sample and the held-out texts, none of which stands in the sample or comes twice."""
    sample = list(training_rows(chats["train"], makers["train"], rng))
    yield from (dialogue("train", task.domain, task) for task in sample)
    seen = {task.document() for task in sample}
    counts: dict[str, int] = {}
    for domain, task in [*(("chat", task) for task in chats["test"][:NUM_TEXTS]), *rounds(makers["test"], rng)]:
        if counts.get(domain, 0) < NUM_TEXTS and task.document() not in seen:
            seen.add(task.document())
            counts[domain] = counts.get(domain, 0) + 1
            yield dialogue("test", domain, task)


def problem_rows(rng: random.Random) -> Iterator[dict[str, Any]]:
    """Yield problems of each number of steps, in known and in new forms; what no template has is left out."""
    for held_out in (False, True):
        counts: dict[int, int] = {}
        for _ in range(TRIES * NUM_PROBLEMS):
            task = word_problems.make(rng, held_out)
            answer = task.messages[-1]
            num_steps = (answer.get("reasoning_content") or answer["content"]).count(" = ")
            if counts.get(num_steps, 0) < NUM_PROBLEMS:
                counts[num_steps] = counts.get(num_steps, 0) + 1
                yield {
                    "kind": "problem",
                    "num_steps": num_steps,
                    "templates": "held-out" if held_out else "seen",
                    "messages": task.messages[:-1],
                    "thinking_mode": task.thinking_mode,
                    "expected": task.expected,
                }


def needle_rows(rng: random.Random) -> Iterator[dict[str, Any]]:
    """Yield groups of facts of one kind with different answers; the first of each is asked for."""
    for _ in range(NUM_NEEDLES):
        facts: list[Any] = []
        while len({fact[-1] for fact in facts}) < NUM_FACTS:
            facts = recall.draw_facts(rng, NUM_FACTS)
        first, *others = [{"text": fact[0], "question": fact[1], "expected": fact[3]} for fact in facts]
        yield {"kind": "needle", "opening": rng.choice(recall.OPENINGS), "fact": first, "others": others}


def prompt_rows(
    chats: list[Task], makers: list[tuple[Make, Make | None]], rng: random.Random
) -> Iterator[dict[str, Any]]:
    """Yield different prompts of every domain."""
    seen: set[str] = set()
    counts: dict[str, int] = {}
    for domain, task in [*(("chat", task) for task in chats), *rounds(makers, rng)]:
        text = task.prompt_text()
        is_full = counts.get(domain, 0) >= NUM_PROMPTS.get(domain, NUM_PROMPTS_OF_A_DOMAIN)
        if not is_full and text not in seen and len(text) <= MAX_PROMPT_CHARS:
            seen.add(text)
            counts[domain] = counts.get(domain, 0) + 1
            yield prompt(domain, task)


def draw_fillers(rng: random.Random, pairs: list[tuple[str, str]]) -> list[str]:
    """Return different ordinary sentences of these chats."""
    sentences = sorted({sentence for _, reply in pairs[:3000] for sentence in split_sentences(reply)})
    return rng.sample(sentences, min(len(sentences), NUM_FILLERS))


def header() -> dict[str, Any]:
    """Return the first row; its probe tells whether a model's template writes what training saw."""
    probe = [
        {"role": "system", "content": "Answer briefly."},
        user("What is 2 plus 3?"),
        assistant("5", "One step.\n2 + 3 = 5"),
        user("Thank you!"),
        assistant("You are welcome!"),
    ]
    return {
        "kind": "suite",
        "name": "demo",
        "version": VERSION,
        "seed": SEED,
        "probe": probe,
        "probe_text": render(probe),
        "notices": NOTICES,
    }


def build_rows(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield all rows of the suite."""
    rng = random.Random(SEED)
    pairs = {"train": [*read_chats(folder, "train", 0, 101)], "test": [*read_chats(folder, "heldout", 0, 1)]}
    for part in pairs.values():
        rng.shuffle(part)
    chats = {split: [Task("chat", [user(q), assistant(a)]) for q, a in part] for split, part in pairs.items()}
    # Sentences between facts are those of other chats in the sample, or an n-gram model would know them by heart.
    fillers = {split: draw_fillers(rng, part) for split, part in pairs.items()}
    makers = {split: list(find_makers(sentences)) for split, sentences in fillers.items()}
    yield header()
    yield from text_rows(chats, makers, rng)
    yield from problem_rows(rng)
    yield from needle_rows(rng)
    yield from ({"kind": "filler", "text": sentence} for sentence in fillers["test"])
    # Not the chats that are scored as texts.
    yield from prompt_rows(chats["test"][NUM_TEXTS:], makers["test"], rng)
    yield from document_rows(*sort_documents(folder), rng)


def main() -> None:
    """Write the suite and say what it holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data_folder", type=Path)
    parser.add_argument("suite", type=Path, help=".jsonl or .jsonl.xz")
    options = parser.parse_args()
    rows = list(build_rows(options.data_folder))
    raw = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    options.suite.parent.mkdir(parents=True, exist_ok=True)
    packed = lzma.compress(raw, preset=9) if options.suite.suffix == ".xz" else raw
    options.suite.write_bytes(packed)
    counts: dict[str, int] = {}
    for row in rows:
        name = " ".join(str(row[key]) for key in ("kind", "split", "templates", "num_steps", "domain") if key in row)
        counts[name] = counts.get(name, 0) + 1
    print("\n".join(f"{count:6} {name}" for name, count in sorted(counts.items())))
    print(f"{len(raw)} bytes, {len(packed)} written")


if __name__ == "__main__":
    main()
