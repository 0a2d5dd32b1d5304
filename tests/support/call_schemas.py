"""Random schemas of tool parameters, and calls drawn token by token under the masks of a grammar."""

from __future__ import annotations

import random
from typing import Any

import jsonschema
import numpy as np

from slipstream.text.grammar.bitmask import allowed_tokens
from slipstream.text.tokenizer import Tokenizer
from slipstream.text.tools.syntax import NAMESPACE

_NAMES = ("name", "age", "item", "x", "two words", "ключ", "tool_call", "invoke", 'q"q')
_ENDS_VALUE = (b'"', b"}", b"]")
_ENDS_ELEMENT = (b"/", b"</")
_GOES_ON = (b"0", b"1", b",", b":", b"e", b"l", b"u", b"<")


def random_parameters(draws: random.Random) -> dict[str, Any]:
    """Return the parameters of a function."""
    return _object(draws, 3)


def is_valid(value: Any, schema: Any) -> bool:
    """Return whether a value satisfies a schema."""
    return jsonschema.Draft202012Validator(schema).is_valid(value)


def draw_call(matcher: Any, tokenizer: Tokenizer, draws: random.Random, *, late: int = 60, longest: int = 4000):
    """Return tokens drawn one by one under the masks until the answer ends; late, those that help to end it."""
    mask = np.empty((1, (tokenizer.vocab_size + 31) // 32), dtype=np.int32)
    enders = {*tokenizer.eos_token_ids, tokenizer.control_ids[NAMESPACE]}
    tokens: list[int] = []
    while not matcher.is_terminated:
        matcher.fill_masks((), mask)
        allowed = allowed_tokens(mask[0], tokenizer.vocab_size)
        if len(tokens) > late:
            kinds = (_ENDS_VALUE, _ENDS_ELEMENT, _GOES_ON)
            wanted = [[token for token in allowed if tokenizer.token_bytes(token) in kind] for kind in kinds]
            allowed = next(filter(None, [[token for token in allowed if token in enders], *wanted]), allowed)
        tokens.append(draws.choice(allowed))
        matcher.accept(tokens[-1:])
        assert len(tokens) < longest, tokenizer.decode(tokens)
    return tokens


def _schema(draws: random.Random, depth: int) -> dict[str, Any]:
    kinds = ["string", "bounded", "pattern", "integer", "number", "boolean", "null", "enum", "const", "union", "any"]
    kinds += ["object", "object", "array", "array", "free", "prefix", "nullable"] if depth else []
    kind = draws.choice(kinds)
    made: dict[str, Any] = {"type": kind}
    if kind == "bounded":
        low = draws.randrange(3)
        made = {"type": "string", "minLength": low, "maxLength": low + draws.randrange(9)}
    elif kind == "pattern":
        made = {"type": "string", "pattern": draws.choice(["^[a-c/]{2,4}$", "^x\\d{1,3}-?$", "^(ab|cd)+e$"])}
    elif kind == "integer":
        low = draws.randrange(-50, 50)
        made = {"type": "integer", "minimum": low, "maximum": low + draws.randrange(2000)}
    elif kind == "enum":
        made = {"enum": draws.sample(["red", "", 7, None, True, 'a "b"', "<deep>"], 4)}
    elif kind == "const":
        made = {"const": draws.choice(["fixed value", 12, False])}
    elif kind == "union":
        made = {"type": draws.sample(["string", "integer", "boolean", "null", "number"], 2)}
    elif kind == "any":
        made = {}
    elif kind == "object":
        made = _object(draws, depth - 1)
    elif kind == "array":
        low = draws.randrange(3)
        made = {"type": "array", "items": _schema(draws, depth - 1), "minItems": low}
    elif kind == "free":
        made = {"type": "object", "additionalProperties": {"type": "boolean"}}
    elif kind == "prefix":
        made = {"type": "array", "prefixItems": [{"type": "integer"}, {"const": "a"}], "items": False, "minItems": 2}
    elif kind == "nullable":
        made = {"anyOf": [_object(draws, depth - 1), {"type": "null"}], "default": None}
    return made


def _object(draws: random.Random, depth: int) -> dict[str, Any]:
    names = draws.sample(_NAMES, draws.randrange(1, 4))
    properties = {name: _schema(draws, depth) for name in names}
    required = [name for name in names if draws.random() < 0.6]
    return {"type": "object", "properties": properties, "required": required}
