"""Markers of the chat format and the text of a conversation.

The strings are the ones of the model family, so that the family's parsers work on the demo model. The Jinja template
that ships with the checkpoint (chat_template.jinja) must agree with `render`; check_assets.py compares them.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

DOCUMENT_START = "]~!b["
TURN_START = "]~b]"
TURN_END = "[e~["
THINK_OPEN = "<mm:think>"
THINK_CLOSE = "</mm:think>"
NAMESPACE = "]<]minimax[>["
CALL_OPEN = "<tool_call>"
CALL_CLOSE = "</tool_call>"
IMAGE = "]<]image[>["
VIDEO = "]<]video[>["
NUM_MARKERS = 64

# Markers that a reader of plain text never needs; the others carry meaning for the parsers and stay visible.
HIDDEN_MARKERS = (
    DOCUMENT_START,
    TURN_START,
    TURN_END,
    IMAGE,
    VIDEO,
    "]<]start of image[>[",
    "]<]end of image[>[",
)
VISIBLE_MARKERS = (THINK_OPEN, THINK_CLOSE, NAMESPACE, CALL_OPEN, CALL_CLOSE)

TOOLS_HEAD = "You can call the tools below. Call one when it helps to answer."


def all_markers() -> list[tuple[str, bool]]:
    """Return the 64 markers in id order, each with whether it is hidden from plain text."""
    order = [DOCUMENT_START, TURN_START, TURN_END, THINK_OPEN, THINK_CLOSE, NAMESPACE, CALL_OPEN, CALL_CLOSE]
    order += [name for name in HIDDEN_MARKERS if name not in order]
    named = [(name, name in HIDDEN_MARKERS) for name in order]
    spare = [(f"]<]reserved {index:02d}[>[", True) for index in range(NUM_MARKERS - len(named))]
    return named + spare


def turn(role: str, text: str) -> str:
    """Return one closed turn."""
    return f"{TURN_START}{role}\n{text}{TURN_END}\n"


def answer(text: str, thinking: str | None = None) -> str:
    """Return the text of an `ai` turn; without thinking it starts with a bare closing tag."""
    head = f"{THINK_OPEN}{thinking}{THINK_CLOSE}" if thinking else THINK_CLOSE
    return head + text


def element(name: str, value: Any) -> str:
    """Return one argument of a tool call as tagged text; null is an empty element, which only a list writes."""
    if value is None:
        body = ""
    elif isinstance(value, dict):
        body = members(value)
    elif isinstance(value, list):
        body = "".join(element("item", inner) for inner in value)
    elif isinstance(value, str):
        body = value
    else:
        body = json.dumps(value)
    return f"{NAMESPACE}<{name}>{body}{NAMESPACE}</{name}>"


def members(values: dict[str, Any]) -> str:
    """Return the arguments of a call, or the members of an object, without those that are null."""
    return "".join(element(key, value) for key, value in values.items() if value is not None)


def tool_calls(calls: list[dict[str, Any]]) -> str:
    """Return the calls of one turn; each is `{"name": ..., "arguments": {...}}`."""
    body = ""
    for call in calls:
        body += f'{NAMESPACE}<invoke name="{call["name"]}">{members(call["arguments"])}{NAMESPACE}</invoke>'
    return f"{NAMESPACE}{CALL_OPEN}{body}{NAMESPACE}{CALL_CLOSE}"


def tools_section(tools: list[dict[str, Any]]) -> str:
    """Return the text of the turn that introduces the tools."""
    lines = [json.dumps(tool.get("function", tool), ensure_ascii=False) for tool in tools]
    return "\n".join([TOOLS_HEAD, "<tools>", *lines, "</tools>"])


def render(
    messages: list[dict[str, Any]],
    tools: list[dict[str, Any]] | None = None,
    thinking_mode: str | None = None,
) -> str:
    """Render a conversation.

    Args:
        messages: OpenAI-style messages; `reasoning_content` and `tool_calls` are read on assistant turns.
        tools: OpenAI-style tools.
        thinking_mode: `enabled`, `disabled` or `adaptive` ends with an open `ai` turn; None closes the text.
    """
    text = DOCUMENT_START
    if tools:
        text += turn("developer", tools_section(tools))
    for role, group in itertools.groupby(messages, key=lambda message: message["role"]):
        # Tool results in a row share one turn.
        if role == "tool":
            text += turn("tool", "\n".join(f"<response>{message.get('content') or ''}</response>" for message in group))
            continue
        text += "".join(_turn_of(role, message) for message in group)
    if thinking_mode is not None:
        ending = {"enabled": THINK_OPEN, "disabled": THINK_CLOSE, "adaptive": ""}
        text += f"{TURN_START}ai\n{ending[thinking_mode]}"
    return text


def _turn_of(role: str, message: dict[str, Any]) -> str:
    """Return the turn of a message that is no tool result."""
    content = message.get("content") or ""
    if role != "assistant":
        return turn(role, content)
    calls = [call["function"] for call in message.get("tool_calls", [])]
    body = answer(content, message.get("reasoning_content"))
    return turn("ai", body + (tool_calls(calls) if calls else ""))
