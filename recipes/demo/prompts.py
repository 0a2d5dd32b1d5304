"""Prompts: training prompts for the text that the target writes itself, and the held-out set that ships.

python prompts.py DATA_FOLDER PROMPTS.jsonl      write the held-out set
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Callable
from pathlib import Path

from chat_format import render
from corpus import TASKS_PER_1000_CHATS, read_chats, split_sentences
from generators import json_extraction, needle, recall, small_talk, stories, tool_use, word_problems
from generators.task import Task, assistant, system_turn, user

CHAT_STRIDE = 3
HELD_OUT_COUNTS = {"chat": 16, "word_problems": 16, "small_talk": 12, "json": 12, "recall": 8, "stories": 12}
READ_STORIES = 4  # of the stories; the others are written
# Held-out nouns that do not suit a demonstration.
AVOIDED = re.compile(r"\b(aggression|blindness|contraceptive|stroke|viper|thong|dungeon|tragedy|mortgage)s?\b", re.I)
RECALL_FILLERS = (6, 10, 14, 18)
# Length in tokens and depth of the planted fact.
NEEDLES = ((300, 0.1), (400, 0.6), (500, 0.3), (650, 0.8), (800, 0.0), (1000, 0.5), (1300, 0.2), (1950, 0.7))


def draw_prompt(rng: random.Random, chats: list[tuple[str, str]], fillers: list[str]) -> str:
    """Return the text of one prompt; half of them are teacher questions."""
    weights = {"chat": 1000, **TASKS_PER_1000_CHATS, "chats": 0}
    kind = rng.choices(list(weights), list(weights.values()))[0]
    if kind == "chat":
        question, reply = rng.choice(chats)
        thought = "" if rng.random() < 0.15 else None
        return Task("chat", [*system_turn(rng, 0.15), user(question), assistant(reply, thought)]).prompt_text()
    if kind == "recall":
        return recall.make(rng, fillers, rng.choice((0, 0, 1))).prompt_text()
    if kind == "tools":
        return tool_use.make(rng).prompt_text()
    makers: dict[str, Callable[[random.Random], Task]] = {
        "word": word_problems.make,
        "json": json_extraction.make,
        "talk": small_talk.make,
        "stories": stories.make,
    }
    task = makers[kind](rng)
    if rng.random() < 0.2:
        return render(task.messages[:-1], task.tools, "adaptive")
    return task.prompt_text()


def collect_prompts(
    data_folder: Path, checkpoint_folder: Path, count: int, max_prompt: int, seed: int
) -> list[list[int]]:
    """Return the token ids of `count` training prompts of at most max_prompt tokens."""
    from tokenizer import load_tokenizer

    rng = random.Random(seed)
    tokenizer = load_tokenizer(checkpoint_folder)
    chats = list(read_chats(data_folder, "train", 0, CHAT_STRIDE))
    fillers = [sentence for _, reply in chats[:4000] for sentence in split_sentences(reply)]
    prompts: list[list[int]] = []
    while len(prompts) < count:
        texts = [draw_prompt(rng, chats, fillers) for _ in range(2000)]
        encoded = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        prompts += [encoding.ids for encoding in encoded if len(encoding) <= max_prompt]
    return prompts[:count]


def held_out_tasks(data_folder: Path, seed: int, times: int = 1) -> list[Task]:
    """Return tasks whose questions, templates or wordings training never saw; in needles, whose filler text.

    None of them opens with thinking, so that the template's default ending is the right one for every row.

    Args:
        data_folder: folder with the packed data files.
        seed: seed of the choice.
        times: how many times the shipped number of tasks; small talk does not have more.
    """
    rng = random.Random(seed)
    chats = list(read_chats(data_folder, "heldout", 0, 1))
    rng.shuffle(chats)
    questions = [text for text in {question: None for question, _ in chats} if not AVOIDED.search(text)]
    tasks = [Task("chat", [user(text), assistant("")]) for text in questions[: times * HELD_OUT_COUNTS["chat"]]]
    for _ in range(times * HELD_OUT_COUNTS["word_problems"]):
        tasks.append(word_problems.make(rng, held_out=True, thinking=False))
    talk: dict[str, Task] = {}
    while len(talk) < HELD_OUT_COUNTS["small_talk"]:
        task = small_talk.make(rng, held_out=True)
        talk[task.messages[0]["content"]] = task
    tasks += talk.values()
    tasks += [json_extraction.make(rng, held_out=True) for _ in range(times * HELD_OUT_COUNTS["json"])]
    fillers = [sentence for _, reply in chats[:3000] for sentence in split_sentences(reply)]
    for index in range(times * HELD_OUT_COUNTS["recall"]):
        tasks.append(recall.find_fact(rng, fillers, RECALL_FILLERS[index % len(RECALL_FILLERS)]))
    for index in range(times * HELD_OUT_COUNTS["stories"]):
        is_read = index % HELD_OUT_COUNTS["stories"] < READ_STORIES
        tasks.append((stories.read if is_read else stories.written)(rng, held_out=True))
    for num_tokens, depth in NEEDLES * times:
        tasks.append(needle.make(rng, fillers, num_tokens, depth, num_facts=4))
    return tasks


def main() -> None:
    """Write the held-out prompts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data_folder", type=Path)
    parser.add_argument("prompts", type=Path)
    parser.add_argument("--seed", type=int, default=11)
    options = parser.parse_args()
    rows = [task.prompt_row() for task in held_out_tasks(options.data_folder, options.seed)]
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    options.prompts.write_text(text, encoding="utf-8")
    print(len(rows), "prompts")


if __name__ == "__main__":
    main()
