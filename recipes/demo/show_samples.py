"""Print the greedy answers to twelve fixed prompts, good or bad, for the model card.

python show_samples.py CHECKPOINT_FOLDER SAMPLES.txt
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from chat_format import render
from checkpoint import load_target
from decoding import write
from generators.task import assistant, user
from tokenizer import load_tokenizer, special_ids

MAX_NEW = 96
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
)


def main() -> None:
    """Answer and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint_folder", type=Path)
    parser.add_argument("samples", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    network = load_target(options.checkpoint_folder)
    tokenizer = load_tokenizer(options.checkpoint_folder)
    eos = special_ids(tokenizer)["eos"]
    parts = []
    for mode, messages in PROMPTS:
        prompt = tokenizer.encode(render(messages, None, mode), add_special_tokens=False).ids
        text = tokenizer.decode(write(network, [prompt], MAX_NEW, eos)[0], skip_special_tokens=True)
        asked = "\n".join(f"{message['role']}: {message['content']}" for message in messages)
        parts.append(f"[thinking {mode}]\n{asked}\nanswer: {text}\n")
    options.samples.write_text("\n".join(parts), encoding="utf-8")
    print("\n".join(parts))


if __name__ == "__main__":
    main()
