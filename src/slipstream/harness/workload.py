"""What is asked of an engine: prompts by domain, read from JSON lines, in an order that a seed decides.

One line is one object: `domain`, and either `messages` (a conversation) or `prompt` (text). `thinking_mode`, if there,
is handed to the chat template. Other keys are ignored.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from slipstream.base.errors import ConfigError


class WorkItem(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt. Exactly one of `messages` and `prompt` is set.

    Args:
        domain: what kind of text this is; results are grouped by it.
        messages: (role, content) pairs, or empty.
        prompt: text that the model continues, or None.
        thinking_mode: variable of the chat template, or None.
    """

    domain: str
    messages: tuple[tuple[str, str], ...] = ()
    prompt: str | None = None
    thinking_mode: str | None = None

    @property
    def template_kwargs(self) -> dict[str, str]:
        """Return the variables for the chat template."""
        return {} if self.thinking_mode is None else {"thinking_mode": self.thinking_mode}

    def as_chat(self) -> list[dict[str, str]]:
        """Return the conversation in the wire shape of a chat request; a bare prompt becomes a user turn."""
        turns = self.messages or (("user", self.prompt or ""),)
        return [{"role": role, "content": content} for role, content in turns]


def parse_item(line: str, where: str) -> WorkItem:
    """Return the item of one JSON line.

    Raises:
        ConfigError: not such an object; the message names `where`.
    """
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{where}: not JSON ({error.msg})") from None
    if not isinstance(value, Mapping) or not isinstance(value.get("domain"), str):
        raise ConfigError(f"{where}: give an object with the string 'domain' and either 'messages' or 'prompt'")
    messages, prompt = value.get("messages"), value.get("prompt")
    if (messages is None) == (prompt is None):
        raise ConfigError(f"{where}: give exactly one of 'messages' and 'prompt'")
    if prompt is not None:
        if not isinstance(prompt, str) or not prompt:
            raise ConfigError(f"{where}: 'prompt' must be a string that is not empty")
        return WorkItem(domain=value["domain"], prompt=prompt)
    thinking_mode = value.get("thinking_mode")
    if not isinstance(thinking_mode, str | None):
        raise ConfigError(f"{where}: 'thinking_mode' must be a string")
    return WorkItem(domain=value["domain"], messages=_parse_messages(messages, where), thinking_mode=thinking_mode)


def _parse_messages(messages: object, where: str) -> tuple[tuple[str, str], ...]:
    if not isinstance(messages, list) or not messages:
        raise ConfigError(f"{where}: 'messages' must be a list that is not empty")
    pairs: list[tuple[str, str]] = []
    for message in messages:
        role = message.get("role") if isinstance(message, Mapping) else None
        content = message.get("content") if isinstance(message, Mapping) else None
        if not isinstance(role, str) or not isinstance(content, str):
            raise ConfigError(f"{where}: every message needs the strings 'role' and 'content'")
        pairs.append((role, content))
    return tuple(pairs)


def read_items(path: Path) -> tuple[WorkItem, ...]:
    """Return the items of a JSON-lines file; blank lines are skipped.

    Raises:
        ConfigError: the file is absent, holds no item, or one of its lines is not an item.
    """
    if not path.is_file():
        raise ConfigError(f"no prompts at {path}: give a JSON-lines file of objects with 'domain' and 'messages'")
    lines = path.read_text(encoding="utf-8").splitlines()
    items = tuple(parse_item(line, f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip())
    if not items:
        raise ConfigError(f"{path} holds no prompts")
    return items


def group_by_domain(items: Iterable[WorkItem]) -> dict[str, tuple[WorkItem, ...]]:
    """Return domain -> items, domains in order of first appearance."""
    groups: dict[str, list[WorkItem]] = {}
    for item in items:
        groups.setdefault(item.domain, []).append(item)
    return {domain: tuple(members) for domain, members in groups.items()}


def choose_items(items: Iterable[WorkItem], count: int, seed: int) -> tuple[WorkItem, ...]:
    """Return `count` items, as many of each domain as possible, in an order that `seed` decides.

    Domains take turns; a domain with too few items repeats them.
    """
    generator = random.Random(seed)
    queues = []
    for members in group_by_domain(items).values():
        shuffled = list(members)
        generator.shuffle(shuffled)
        queues.append(shuffled)
    if not queues:
        raise ConfigError("no prompts to choose from")
    chosen = [queues[i % len(queues)][(i // len(queues)) % len(queues[i % len(queues)])] for i in range(count)]
    generator.shuffle(chosen)
    return tuple(chosen)
