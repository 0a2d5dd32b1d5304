"""Random JSON schemas, a small validator for what they use, and random answers drawn under masks."""

from __future__ import annotations

import random
import re
from typing import Any

from support.grammar_world import allowed_now, end_id, grammar_tokenizer, ladder

_CLOSERS = (b'"', b"}", b"]", b"0", b"1", b",", b":", b"e")
_WORDS = ("name", "age", "tags", "x", "deep", "ok")


def random_schema(draws: random.Random, depth: int = 3) -> dict[str, Any]:
    """Return a schema of bounded answers."""
    kinds = ["string", "integer", "number", "boolean", "null", "enum", "const", "pattern"]
    kinds += ["object", "object", "array", "anyOf", "prefix"] if depth else []
    kind = draws.choice(kinds)
    if kind == "string":
        low = draws.randrange(3)
        return {"type": "string", "minLength": low, "maxLength": low + draws.randrange(5)}
    if kind == "integer":
        low = draws.randrange(-50, 50)
        return {"type": "integer", "minimum": low, "maximum": low + draws.randrange(2000)}
    if kind == "number":
        return {"type": "number", "minimum": -2, "maximum": draws.randrange(1, 40)}
    if kind == "enum":
        return {"enum": draws.sample(["red", "green", 7, None, True, 'a "b"', "deep"], 3)}
    if kind == "const":
        return {"const": draws.choice(["fixed value", 12, {"a": [1, 2]}])}
    if kind == "pattern":
        return {"type": "string", "pattern": draws.choice(["^[a-c]{2,4}$", "^x[0-9]{1,3}-?$", "^(ab|cd)+e$"])}
    if kind == "array":
        low = draws.randrange(3)
        return {"type": "array", "items": random_schema(draws, depth - 1), "minItems": low, "maxItems": low + 2}
    if kind == "prefix":
        items = [random_schema(draws, depth - 1) for _ in range(2)]
        return {"type": "array", "prefixItems": items, "items": False, "minItems": 2}
    if kind == "anyOf":
        return {"anyOf": [random_schema(draws, depth - 1) for _ in range(2)]}
    if kind == "object":
        names = draws.sample(_WORDS, draws.randrange(1, 4))
        properties = {name: random_schema(draws, depth - 1) for name in names}
        required = [name for name in names if draws.random() < 0.6]
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return {"type": kind}


def is_valid(value: Any, schema: Any) -> bool:
    """Return whether a value satisfies a schema of `random_schema`'s kind."""
    if isinstance(schema, bool):
        return schema
    if "anyOf" in schema:
        return any(is_valid(value, arm) for arm in schema["anyOf"])
    if "enum" in schema:
        return any(_same(value, item) for item in schema["enum"])
    if "const" in schema:
        return _same(value, schema["const"])
    return "type" not in schema or _CHECKS[schema["type"]](value, schema)


def _same(left: Any, right: Any) -> bool:
    return left == right and isinstance(left, bool) == isinstance(right, bool)


def _is_number(value: Any, schema: dict[str, Any]) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and schema.get("minimum", value) <= value <= schema.get("maximum", value)


def _is_string(value: Any, schema: dict[str, Any]) -> bool:
    return (
        isinstance(value, str)
        and schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", 10**9)
        and re.search(schema.get("pattern", ""), value) is not None
    )


def _is_array(value: Any, schema: dict[str, Any]) -> bool:
    if not isinstance(value, list) or not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", 10**9):
        return False
    prefix = schema.get("prefixItems", [])
    rest = schema.get("items", True)
    places = [prefix[place] if place < len(prefix) else rest for place in range(len(value))]
    return all(is_valid(item, place) for item, place in zip(value, places, strict=True))


def _is_object(value: Any, schema: dict[str, Any]) -> bool:
    if not isinstance(value, dict) or not set(schema.get("required", [])) <= set(value):
        return False
    properties = schema.get("properties", {})
    rest = schema.get("additionalProperties", True)
    return all(is_valid(item, properties.get(name, rest)) for name, item in value.items())


_CHECKS = {
    "string": _is_string,
    "integer": lambda value, schema: float(value).is_integer() if _is_number(value, schema) else False,
    "number": _is_number,
    "boolean": lambda value, schema: isinstance(value, bool),
    "null": lambda value, schema: value is None,
    "array": _is_array,
    "object": _is_object,
}


def draw_token(allowed: list[int], draws: random.Random, is_late: bool) -> int:
    """Return one allowed token, uniformly; late in an answer one that helps to end it, if there is one."""
    if is_late:
        if end_id() in allowed:
            return end_id()
        token_bytes = grammar_tokenizer().token_bytes
        closers = [token for token in allowed if token_bytes(token) in _CLOSERS]
        allowed = closers or allowed
    return draws.choice(allowed)


def draw_answer(matcher, draws: random.Random, *, late: int = 40, longest: int = 600) -> list[int]:
    """Return tokens drawn one by one under the masks, up to and including the end token."""
    tokens: list[int] = []
    while not matcher.is_terminated:
        tokens.append(draw_token(allowed_now(matcher), draws, len(tokens) > late))
        matcher.accept(tokens[-1:])
        assert len(tokens) < longest, grammar_tokenizer().decode(tokens)
    return tokens


def draw_drafts(matcher, draws: random.Random, count: int, quality: float) -> list[int]:
    """Return drafts that are each allowed with probability `quality`, and otherwise anything, NO_TOKEN included."""
    drafts: list[int] = []
    for _ in range(count):
        num_allowed, rows = ladder(matcher, drafts)
        is_good = num_allowed == len(drafts) and draws.random() < quality
        drafts.append(draws.choice(rows[-1]) if is_good else draws.randrange(-1, grammar_tokenizer().vocab_size))
    return drafts
