"""The two chat formats written down a second time, in Python, with a mark on every piece that says who wrote it.

`demo` is the bundled template, `family` the one in tests/data/dialogues. Both take what a client sends. Token ids are
made here without the product: control tokens only where the template wrote them, everything else by a tokenizer that
does not know them.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import tokenizers

from slipstream.demo import demo_path

NS = "]<]minimax[>["
_DOCUMENT = json.loads((demo_path() / "tokenizer.json").read_text(encoding="utf-8"))
CONTROL = {token["content"]: token["id"] for token in _DOCUMENT["added_tokens"]}
_PLAIN = tokenizers.Tokenizer.from_str(json.dumps(_DOCUMENT | {"added_tokens": []}))
_CONTROL = re.compile("(" + "|".join(re.escape(text) for text in sorted(CONTROL, key=len, reverse=True)) + ")")
_THINK_TAGS = re.compile(r"(</?mm:think>)")


class Piece(NamedTuple):
    """Part of a prompt.

    Args:
        text: the part.
        is_own: whether the template wrote it, so that control tokens in it are meant.
    """

    text: str
    is_own: bool = False


def text_of(pieces: list[Piece]) -> str:
    """Return the prompt as people read it."""
    return "".join(piece.text for piece in pieces)


def ids_of(pieces: list[Piece]) -> list[int]:
    """Return the token ids of a prompt."""
    ids: list[int] = []
    plain = ""
    for piece in pieces:
        for place, part in enumerate(_CONTROL.split(piece.text) if piece.is_own else [piece.text]):
            if place % 2:
                ids += [*_PLAIN.encode(plain).ids, CONTROL[part]]
                plain = ""
            else:
                plain += part
    return ids + _PLAIN.encode(plain).ids


def control_ids_of(pieces: list[Piece]) -> list[int]:
    """Return only the control tokens that the template means."""
    return [CONTROL[found] for piece in pieces if piece.is_own for found in _CONTROL.findall(piece.text)]


def holds_look_alikes(pieces: list[Piece]) -> bool:
    """Return whether a reader of the bare text would see control tokens elsewhere than the template wrote them."""
    meant, start = [], 0
    for piece in pieces:
        meant += [start + found.start() for found in _CONTROL.finditer(piece.text) if piece.is_own]
        start += len(piece.text)
    return meant != [found.start() for found in _CONTROL.finditer(text_of(pieces))]


def demo(dialogue: dict[str, Any]) -> list[Piece]:
    """Return the prompt of a dialogue in the format that the bundled model was trained on."""
    pieces = [_own("]~!b[")]
    tools = [tool["function"] for tool in dialogue.get("tools", [])]
    if tools:
        pieces.append(_own("]~b]developer\nYou can call the tools below. Call one when it helps to answer.\n<tools>\n"))
        for tool in tools:
            pieces += [Piece(json.dumps(tool, ensure_ascii=False)), _own("\n")]
        pieces.append(_own("</tools>[e~[\n"))
    names = {"root": "system", "assistant": "ai"}
    for role, group in itertools.groupby(dialogue["messages"], key=lambda message: message["role"]):
        if role == "tool":
            pieces += _results(group)
            continue
        for message in group:
            pieces.append(_own(f"]~b]{names.get(role, role)}\n"))
            pieces += _answer(message, "") if role == "assistant" else [Piece(_words(message))]
            pieces.append(_own("[e~[\n"))
    return pieces + _generation_prompt(dialogue, "disabled")


def family(dialogue: dict[str, Any]) -> list[Piece]:
    """Return the prompt of a dialogue in the shape that the released models have."""
    messages = list(dialogue["messages"])
    kwargs = dialogue.get("template_kwargs", {})
    root = _words(messages.pop(0)) if messages[0]["role"] == "root" else ""
    first = messages and messages[0]["role"] in ("system", "developer")
    developer = _words(messages.pop(0)) if first else ""
    mode = thinking_mode(kwargs) or "adaptive"
    pieces = [_own("]~!b[]~b]system\n"), Piece(root) if root else _own("You stand in for the family.")]
    pieces += [_own("\n\n<thinking_instructions>\nThoughts stand between <mm:think> and </mm:think>. Mode: ")]
    pieces += [_own(f"{mode}.\n</thinking_instructions>")]
    if kwargs.get("reasoning_effort"):
        pieces += [_own("\n<effort>"), Piece(kwargs["reasoning_effort"]), _own("</effort>")]
    pieces += [_own("[e~[\n]~b]developer\n"), Piece(developer) if developer else _own("You give answers.")]
    tools = [tool["function"] for tool in dialogue.get("tools", [])]
    if tools:
        pieces.append(_own("\n\n# Tools\n<tools>\n"))
        for tool in tools:
            pieces += [_own("<tool>"), Piece(json.dumps(tool, ensure_ascii=False)), _own("</tool>\n")]
        sample = f'{NS}<tool_call>\n{NS}<invoke name="f">{NS}<x>1{NS}</x>{NS}</invoke>\n{NS}</tool_call>'
        pieces.append(_own(f"</tools>\n\nA call looks like this:\n{sample}"))
    pieces.append(_own("[e~[\n"))
    kept = [message for message in messages if message["role"] in ("user", "assistant", "tool")]
    for role, group in itertools.groupby(kept, key=lambda message: message["role"]):
        if role == "tool":
            pieces += _results(group)
            continue
        for message in group:
            if role == "user":
                pieces += [_own("]~b]user\n"), Piece(_words(message)), _own("[e~[\n")]
            else:
                pieces += [_own("]~b]ai\n"), *_answer(message, "\n"), _own("[e~[\n")]
    return pieces + _generation_prompt(dialogue, "adaptive")


FORMATS: dict[str, Callable[[dict[str, Any]], list[Piece]]] = {"demo": demo, "family": family}


def thinking_mode(kwargs: dict[str, Any]) -> str | None:
    """Return the mode that the variables of a dialogue ask for."""
    if "enable_thinking" in kwargs:
        return "enabled" if kwargs["enable_thinking"] else "disabled"
    if "thinking" in kwargs:
        return kwargs["thinking"]["type"]
    return kwargs.get("thinking_mode")


def starts_in(dialogue: dict[str, Any], default_mode: str) -> str:
    """Return what the first token of the answer belongs to."""
    mode = thinking_mode(dialogue.get("template_kwargs", {})) or default_mode
    if not dialogue.get("add_generation_prompt", True):
        return "undecided"
    return {"enabled": "reasoning", "disabled": "content", "adaptive": "undecided"}[mode]


DEFAULT_MODES = {"demo": "disabled", "family": "adaptive"}


def _own(text: str) -> Piece:
    return Piece(text, is_own=True)


def _words(message: dict[str, Any]) -> str:
    content = message["content"]
    return "".join(part["text"] for part in content) if isinstance(content, list) else content or ""


def _results(group: Iterator[dict[str, Any]]) -> list[Piece]:
    pieces = [_own("]~b]tool")]
    for message in group:
        pieces += [_own("\n<response>"), Piece(_words(message)), _own("</response>")]
    return [*pieces, _own("[e~[\n")]


def _answer(message: dict[str, Any], line_end: str) -> list[Piece]:
    content, thought = _words(message), message.get("reasoning_content") or ""
    if "reasoning_content" not in message and "</mm:think>" in content:
        before, _, content = content.partition("</mm:think>")
        thought = before.rpartition("<mm:think>")[2].strip("\n")
        content = content.strip("\n")
    # An assistant's tags are tags: the client hands back what a model of the family wrote.
    pieces = [_own("<mm:think>"), *_with_tags(thought)] if thought else []
    pieces += [_own("</mm:think>"), *_with_tags(content)]
    if message.get("tool_calls"):
        pieces.append(_own(f"{NS}<tool_call>{line_end}"))
        for call in message["tool_calls"]:
            function = call["function"]
            pieces += [_own(f'{NS}<invoke name="'), Piece(function["name"]), _own('">')]
            pieces += [*_members(json.loads(function["arguments"])), _own(f"{NS}</invoke>{line_end}")]
        pieces.append(_own(f"{NS}</tool_call>"))
    return pieces


def _with_tags(text: str) -> list[Piece]:
    return [Piece(part, is_own=place % 2 == 1) for place, part in enumerate(_THINK_TAGS.split(text))]


def _members(values: dict[str, Any]) -> list[Piece]:
    return [piece for key, value in values.items() if value is not None for piece in _element(key, value)]


def _element(name: str, value: Any) -> list[Piece]:
    if isinstance(value, dict):
        inner = _members(value)
    elif isinstance(value, list):
        inner = [piece for item in value for piece in _element("item", item)]
    else:
        inner = [Piece("" if value is None else value if isinstance(value, str) else json.dumps(value))]
    return [_own(f"{NS}<"), Piece(name), _own(">"), *inner, _own(f"{NS}</"), Piece(name), _own(">")]


def _generation_prompt(dialogue: dict[str, Any], default_mode: str) -> list[Piece]:
    if not dialogue.get("add_generation_prompt", True):
        return []
    mode = thinking_mode(dialogue.get("template_kwargs", {})) or default_mode
    return [_own("]~b]ai\n" + {"enabled": "<mm:think>", "disabled": "</mm:think>", "adaptive": ""}[mode])]
