"""One generated conversation and the ways to print it."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from chat_format import render

SYSTEM_TEXTS = (
    "You are a helpful assistant.",
    "You are a small and friendly assistant.",
    "Answer briefly.",
    "Be clear and kind.",
    "You are the Slipstream demo model.",
    "Keep answers short and simple.",
)


@dataclass(frozen=True)
class Task:
    """A conversation that ends with the wanted answer.

    Args:
        domain: kind of task, for reports.
        messages: OpenAI-style messages; the last one is the assistant's.
        expected: the part of the answer that a check looks for; empty if there is none.
        tools: OpenAI-style tools, if any.
    """

    domain: str
    messages: list[dict[str, Any]]
    expected: str = ""
    tools: list[dict[str, Any]] | None = None

    @property
    def thinking_mode(self) -> str:
        """Mode under which the last message is the right continuation."""
        return "enabled" if "reasoning_content" in self.messages[-1] else "disabled"

    def document(self) -> str:
        """Return the whole conversation as training text."""
        return render(self.messages, self.tools)

    def prompt_text(self) -> str:
        """Return the text up to where the model starts."""
        return render(self.messages[:-1], self.tools, self.thinking_mode)

    def prompt_row(self) -> dict[str, Any]:
        """Return the prompt as one row of a prompts file."""
        return {
            "domain": self.domain,
            "thinking_mode": self.thinking_mode,
            "messages": self.messages[:-1],
            "expected": self.expected,
        }


def user(text: str) -> dict[str, Any]:
    """Return a user message."""
    return {"role": "user", "content": text}


def assistant(text: str, thinking: str | None = None) -> dict[str, Any]:
    """Return an assistant message."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if thinking is not None:
        message["reasoning_content"] = thinking
    return message


def system_turn(rng: random.Random, share: float = 0.3) -> list[dict[str, Any]]:
    """Return a system message for a share of the conversations, else nothing."""
    if rng.random() >= share:
        return []
    return [{"role": "system", "content": rng.choice(SYSTEM_TEXTS)}]
