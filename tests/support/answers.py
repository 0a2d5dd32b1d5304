"""Recorded answers of a model, and ways to feed them to the parsers in pieces."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from slipstream.text.reasoning.mode import State
from slipstream.text.reasoning.parser import ReasoningParser
from slipstream.text.tools.parser import ToolCallParser, join_deltas
from slipstream.text.tools.syntax import NAMESPACE

_STRING = {"type": "string"}
PARAMETERS: dict[str, dict[str, Any]] = {
    "get_weather": {"type": "object", "properties": {"city": _STRING}},
    "add_numbers": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
    "save_note": {"type": "object", "properties": {"text": _STRING}},
    "ping": {"type": "object", "properties": {}},
    "plan_route": {
        "type": "object",
        "properties": {
            "stops": {
                "type": "array",
                "items": {"type": "object", "properties": {"name": _STRING, "stay": {"$ref": "#/$defs/span"}}},
            },
            "by": {"enum": ["train", "boat", "foot"]},
            "limits": {
                "type": "object",
                "properties": {
                    "euros": {"type": "number"},
                    "late": {"type": "boolean"},
                    "tags": {"type": "array", "items": _STRING},
                },
            },
        },
        "$defs": {"span": {"anyOf": [{"type": "integer"}, {"type": "null"}]}},
    },
}


class Seen(NamedTuple):
    """What a client sees of an answer.

    Args:
        reasoning, content: the texts.
        calls: (id, name, JSON text of the arguments) of each call.
        closing: what would complete a call that was cut off, or None.
    """

    reasoning: str
    content: str
    calls: tuple[tuple[str, str, str], ...]
    closing: str | None


class Answer(NamedTuple):
    """A whole answer: its text, what its first token belongs to, and what is to be seen of it."""

    name: str
    starts_in: State
    text: str
    seen: Seen


def load_answers() -> list[Answer]:
    """Return the recorded answers."""
    source = Path(__file__).parent.parent / "data" / "answers.json"
    text = source.read_text(encoding="utf-8").replace("§", NAMESPACE)
    return [_answer(entry) for entry in json.loads(text)["answers"]]


def _answer(entry: dict[str, Any]) -> Answer:
    calls = tuple((f"call-{place}", name, arguments) for place, (name, arguments) in enumerate(entry["calls"]))
    seen = Seen(entry["reasoning"], entry["content"], calls, entry["closing"])
    return Answer(entry["name"], entry["starts_in"], entry["text"], seen)


def new_ids() -> Any:
    """Return a function that gives ids in order."""
    numbered = itertools.count()
    return lambda: f"call-{next(numbered)}"


def read(
    pieces: Iterable[str],
    starts_in: State,
    reasoning_class: type[ReasoningParser] = ReasoningParser,
    tools_class: type[ToolCallParser] = ToolCallParser,
) -> Seen:
    """Feed pieces through the parser of reasoning into the parser of calls; return what is seen."""
    first, second = reasoning_class(starts_in), tools_class(PARAMETERS, new_ids())
    reasoning, deltas = [], []
    for piece in pieces:
        delta = first.feed(piece)
        reasoning.append(delta.reasoning)
        deltas.append(second.feed(delta.content))
    last = first.flush()
    reasoning.append(last.reasoning)
    deltas += [second.feed(last.content), second.flush()]
    answer = join_deltas(deltas)
    calls = tuple((call.id, call.name, call.arguments) for call in answer.calls)
    closing = None if answer.unfinished is None else answer.unfinished.closing
    return Seen("".join(reasoning), answer.content, calls, closing)


def chunks(text: str, size: int) -> Sequence[str]:
    """Return the text in chunks of one size; the last may be shorter."""
    return [text[start : start + size] for start in range(0, len(text), size)]
