"""Bounds on a constraint before anything is compiled: sizes, nesting, and regexes that meet on one string.

They are cheap and explain themselves; what they cannot foresee, the guard process bounds (guard).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NoReturn

import msgspec

from slipstream.base.errors import RequestError
from slipstream.wire.grammar import GrammarSpec

_DATA_KEYWORDS = frozenset({"enum", "const", "default", "examples"})
_DEFINITIONS = frozenset({"$defs", "definitions"})
_STRING_RULES = {"pattern": str, "format": str, "multipleOf": (int, float)}


class GrammarLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How large a constraint may be, and how long it may take to compile.

    Args:
        max_text_bytes: any specification.
        max_regex_bytes: a regular expression, which costs more per byte.
        max_ebnf_bytes: a grammar that has to be translated from EBNF first.
        max_nesting: objects and lists within each other in a schema.
        max_intersections: regexes that may have to hold for one string together (`allOf`, `$ref` with siblings,
            the operators & and ~); the work grows exponentially with their number.
        max_cached: compiled grammars that are kept.
        deadline_s: longest compilation.
        max_compile_bytes: most memory that a compilation may add.
    """

    max_text_bytes: int = 131_072
    max_regex_bytes: int = 4_096
    max_ebnf_bytes: int = 16_384
    max_nesting: int = 64
    max_intersections: int = 4
    max_cached: int = 64
    deadline_s: float = 5.0
    max_compile_bytes: int = 1 << 30


def refuse_large(reason: str) -> NoReturn:
    """Raise the error of a specification that is larger than allowed."""
    raise RequestError(reason, code="grammar_too_large")


def check_size(spec: GrammarSpec, limits: GrammarLimits) -> None:
    """Check the bytes of a specification.

    Raises:
        RequestError: it is larger than its kind may be.
    """
    allowed = limits.max_regex_bytes if spec.kind == "regex" else limits.max_text_bytes
    given = len(spec.text.encode("utf-8"))
    if given > allowed:
        refuse_large(f"{spec.kind}: {given} bytes are given, at most {allowed} are allowed: send a smaller one")


def check_schema(where: str, schema: Any, limits: GrammarLimits) -> None:
    """Check the shape of a schema.

    Args:
        where: begins the message.
        schema: parsed JSON.
        limits: what is allowed.

    Raises:
        RequestError: nested too deeply, or too many regexes may meet on one string.
    """
    nesting = _measure_nesting(schema)
    if nesting > limits.max_nesting:
        refuse_large(f"{where}: nested {nesting} levels deep, at most {limits.max_nesting} are allowed: flatten it")
    try:
        meeting = _Intersections(schema).largest()
    except RecursionError:
        refuse_large(f"{where}: the chain of $ref is too long: refer to definitions more directly")
    if meeting > limits.max_intersections:
        refuse_large(
            f"{where}: up to {meeting} of pattern, format and multipleOf may have to hold for one value together, at "
            f"most {limits.max_intersections} are allowed: use fewer of them in schemas that allOf or $ref combine"
        )


def read_schemas(spec: GrammarSpec) -> Iterator[Any]:
    """Yield the schemas in a specification of kind json_schema or structural."""
    value = json.loads(spec.text)
    if spec.kind == "json_schema":
        yield value
    else:
        yield from (structure["schema"] for structure in value["structures"])


def _measure_nesting(value: Any) -> int:
    deepest = 0
    stack = [(value, 1)]
    while stack:
        here, depth = stack.pop()
        if isinstance(here, (dict, list)):
            deepest = max(deepest, depth)
            stack += [(child, depth + 1) for child in (here.values() if isinstance(here, dict) else here)]
    return deepest


class _Intersections:
    """Bound from above how many rules a schema can put on one value. Arms of allOf add up, alternatives do not."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._known: dict[int, int] = {}

    def largest(self) -> int:
        return self._count(self._root)

    def _count(self, node: Any) -> int:
        if isinstance(node, list):
            return max(map(self._count, node), default=0)
        if not isinstance(node, dict):
            return 0
        known = self._known.get(id(node))
        if known is None:
            self._known[id(node)] = 0  # a schema that contains itself adds nothing the second time
            known = self._known[id(node)] = self._count_object(node)
        return known

    def _count_object(self, node: dict[str, Any]) -> int:
        own = sum(isinstance(node.get(name), kind) for name, kind in _STRING_RULES.items())
        combined = [self._count(arm) for arm in _arms(node, "allOf")]
        combined += [self._count(node[name]) for name in ("anyOf", "oneOf") if isinstance(node.get(name), list)]
        if isinstance(node.get("$ref"), str):
            combined.append(self._count(self._follow(node["$ref"])))
        inside = defined = 0
        for name, child in node.items():
            if name in _DEFINITIONS:
                defined = max(defined, self._count(child))
            elif name not in _DATA_KEYWORDS and not (name in ("allOf", "anyOf", "oneOf") and isinstance(child, list)):
                inside = max(inside, self._count(child))
        together = own + inside + sum(combined) if combined else max(own, inside)
        return max(together, defined)

    def _follow(self, reference: str) -> Any:
        """Return what a local reference points at; others are refused by the library."""
        here = self._root
        for step in reference.removeprefix("#").split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(here, list) and key.isdecimal() and int(key) < len(here):
                here = here[int(key)]
            elif isinstance(here, dict):
                here = here.get(key)
            else:
                return None
        return here if reference.startswith("#") else None


def _arms(node: dict[str, Any], name: str) -> list[Any]:
    value = node.get(name)
    return value if isinstance(value, list) else []
