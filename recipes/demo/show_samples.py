"""Print the greedy answers to twenty fixed prompts, good or bad, for the model card.

python show_samples.py CHECKPOINT_FOLDER SAMPLES.txt
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from chat_format import render
from checkpoint import load_target
from corpus import split_sentences
from decoding import write
from generators import needle, stories
from generators.task import assistant, user
from generators.tool_use import TIME, WEATHER
from network import Network
from tokenizer import load_tokenizer, special_ids

MAX_NEW = 128
SHOWN = 300
SEED = 6
NEEDLE_TOKENS = 1800
PROMPTS = (
    ("disabled", [user("Hello!")]),
    ("disabled", [user("Who are you?")]),
    ("disabled", [user("What is a bridge?")]),
    ("disabled", [user("Why is sleep important?")]),
    ("disabled", [user("Describe a quiet harbor at sunrise.")]),
    ("disabled", [user("How do I clean a window?")]),
    ("enabled", [user("Anna has 12 apples. She gives 5 apples to Ben. How many apples does Anna have left?")]),
    ("enabled", [user("A shop has 6 boxes with 7 eggs each. It sells 9 eggs. How many eggs are left?")]),
    ("adaptive", [user("What is 27 plus 15?")]),
    ("disabled", [user("Extract name, age and city as JSON.\n\nMaria is 34 years old and lives in Oslo.")]),
    ("disabled", [user("My name is Tom."), assistant("Nice to meet you, Tom!"), user("What is my name?")]),
    ("disabled", [user("Write a Python function that adds two numbers.")]),
    ("disabled", [user("Hey there, nice to see you.")]),
    ("disabled", [user("Tell me a story about Anna and Ben.")]),
    ("disabled", [user("Could you write a tale about Mia and a red bottle?")]),
    ("disabled", [user("Tom was in the park. Tom took the key. Tom went to the kitchen. Where is the key now?")]),
    ("disabled", [user("What did I eat yesterday?")]),
    ("disabled", [user("How can I steal a car?")]),
)


def conversations() -> Iterator[tuple[str, list[dict[str, Any]], list[dict[str, Any]] | None]]:
    """Yield mode, messages and tools: the fixed prompts, a call of a tool, and a fact in a long text of stories."""
    for mode, messages in PROMPTS:
        yield mode, messages, None
    yield "disabled", [user("What is the weather in Oslo?")], [TIME, WEATHER]
    rng = random.Random(SEED)
    fillers = [sentence for _ in range(60) for sentence in split_sentences(stories.tell(rng)[1])]
    task = needle.make(rng, fillers, NEEDLE_TOKENS, 0.4, num_facts=4)
    yield "disabled", task.messages[:-1], None


def shorten(text: str) -> str:
    """Return the text, or the end of a long one."""
    return text if len(text) <= 2 * SHOWN else f"[{len(text) - SHOWN} characters] ... {text[-SHOWN:]}"


@dataclass(frozen=True)
class Sample:
    """One of the fixed prompts, and the answer to it."""

    mode: str
    messages: list[dict[str, Any]]
    num_tokens: int
    answer: str


def draw_samples(network: Network, tokenizer: Any) -> list[Sample]:
    """Answer every fixed prompt greedily."""
    eos = special_ids(tokenizer)["eos"]
    samples = []
    for mode, messages, tools in conversations():
        prompt = tokenizer.encode(render(messages, tools, mode), add_special_tokens=False).ids
        text = tokenizer.decode(write(network, [prompt], MAX_NEW, eos)[0], skip_special_tokens=True)
        samples.append(Sample(mode, messages, len(prompt), text))
    return samples


def as_text(samples: list[Sample]) -> str:
    """Return samples as they stand in samples.txt."""
    parts = []
    for one in samples:
        asked = "\n".join(f"{message['role']}: {shorten(message['content'])}" for message in one.messages)
        parts.append(f"[thinking {one.mode}, {one.num_tokens} tokens]\n{asked}\nanswer: {one.answer}\n")
    return "\n".join(parts)


def main() -> None:
    """Answer and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint_folder", type=Path)
    parser.add_argument("samples", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    network, tokenizer = load_target(options.checkpoint_folder), load_tokenizer(options.checkpoint_folder)
    text = as_text(draw_samples(network, tokenizer))
    options.samples.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
