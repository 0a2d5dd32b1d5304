"""Check that the chat template of a checkpoint folder writes exactly what the training text looked like.

    python check_assets.py CHECKPOINT_FOLDER

Also checks that every marker is one token. Exits with 1 on the first difference.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from pathlib import Path
from typing import Any

import jinja2
from chat_format import all_markers, render
from generators import json_extraction, needle, recall, small_talk, stories, tool_use, word_problems
from generators.task import Task
from tokenizer import load_tokenizer

COUNT = 200
MODES = (None, "enabled", "disabled", "adaptive")


def refuse(reason: str) -> None:
    """Stand in for the function that templates call to refuse a conversation."""
    raise ValueError(reason)


def load_template(folder: Path, is_trimmed: bool) -> jinja2.Template:
    """Compile the template as servers do."""
    environment = jinja2.Environment(trim_blocks=is_trimmed, lstrip_blocks=is_trimmed, autoescape=False)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    environment.globals["raise_exception"] = refuse
    return environment.from_string((folder / "chat_template.jinja").read_text(encoding="utf-8"))


def render_with(template: jinja2.Template, task: Task, mode: str | None) -> str:
    """Render a task through the template."""
    values: dict[str, Any] = {"messages": task.messages, "tools": task.tools}
    if mode is not None:
        values |= {"messages": task.messages[:-1], "add_generation_prompt": True, "thinking_mode": mode}
    return template.render(**values)


def draw_tasks(seed: int) -> list[Task]:
    """Return tasks of all kinds."""
    rng = random.Random(seed)
    makers = (word_problems.make, json_extraction.make, small_talk.make, stories.make, tool_use.make)
    tasks = [make(rng) for make in makers for _ in range(COUNT)]
    for make in (recall.make, needle.make):
        tasks += [make(rng, ["A cat is a pet."]) for _ in range(COUNT)]
    return tasks


def main() -> None:
    """Compare and exit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint_folder", type=Path)
    folder = parser.parse_args().checkpoint_folder
    tokenizer = load_tokenizer(folder)
    split = [text for text, _ in all_markers() if len(tokenizer.encode(text, add_special_tokens=False)) != 1]
    if split:
        sys.exit(f"markers that are not one token: {split}")
    templates = [load_template(folder, is_trimmed) for is_trimmed in (False, True)]
    tasks = draw_tasks(3)
    for task in tasks:
        for mode in MODES:
            messages = task.messages if mode is None else task.messages[:-1]
            wanted = render(messages, task.tools, mode)
            for template in templates:
                if render_with(template, task, mode) != wanted:
                    sys.exit(f"template and training text differ:\n{render_with(template, task, mode)}\n---\n{wanted}")
    print(f"{len(tasks)} conversations, {len(MODES)} endings each: template and training text agree")


if __name__ == "__main__":
    main()
