"""What a JSON schema says about the values at a place: their types, their members, their items.

Read loosely: this decides between `12` and `"12"`, and never refuses a value. A place of which nothing is known
allows every type. Not here: validation of values, or of the schema itself (schema).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard
from urllib.parse import unquote

TYPES = frozenset({"string", "integer", "number", "boolean", "null", "array", "object"})
_ALTERNATIVES = ("anyOf", "oneOf")
_MAX_DEPTH = 64
_NUMBER = frozenset({"number", "integer"})
_TYPE_OF = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}


class Shape:
    """The values at one place of a schema.

    Args:
        nodes: schemas, any of which may hold there; none means that nothing is known.
        schema: the whole schema, in which references are looked up.
    """

    def __init__(self, nodes: tuple[Any, ...], schema: Mapping[str, Any]) -> None:
        self._nodes = nodes
        self._schema = schema
        found: dict[int, frozenset[str]] = {}
        each = [_types_of(node, schema, found, 0) for node in nodes]
        self.types: frozenset[str] = frozenset[str]().union(*each) or TYPES

    @classmethod
    def of(cls, schema: Mapping[str, Any] | None) -> Shape:
        """Return the shape of a whole schema; None is a schema of which nothing is known."""
        return cls(() if schema is None else (schema,), schema or {})

    def declares(self, name: str) -> bool:
        """Return whether the schema names this member."""
        return any(name in _mapping(node.get("properties")) for node in self._related())

    def member(self, name: str) -> Shape:
        """Return the shape of an object's member."""
        related = list(self._related())
        found = [m[name] for node in related if name in (m := _mapping(node.get("properties")))]
        if not found:
            found = [rest for node in related if isinstance(rest := node.get("additionalProperties"), dict)]
        return Shape(tuple(found), self._schema)

    def item(self, index: int) -> Shape:
        """Return the shape of an array's item."""
        found: list[Any] = []
        for node in self._related():
            items, first = node.get("items"), node.get("prefixItems")
            if isinstance(items, list):
                first, items = items, node.get("additionalItems")
            if isinstance(first, list) and index < len(first):
                found.append(first[index])
            elif isinstance(items, dict):
                found.append(items)
        return Shape(tuple(found), self._schema)

    def _related(self) -> Iterator[dict[str, Any]]:
        """Yield the schemas at this place, and those that they refer to or combine, each once."""
        seen: set[int] = set()
        pending = list(reversed(self._nodes))
        while pending:
            node = pending.pop()
            if not isinstance(node, dict) or id(node) in seen:
                continue
            seen.add(id(node))
            yield node
            pending.append(referred(node, self._schema))
            for word in ("allOf", *_ALTERNATIVES):
                pending += reversed(_sequence(node.get(word)))


def _types_of(node: Any, schema: Mapping[str, Any], found: dict[int, frozenset[str]], depth: int) -> frozenset[str]:
    if not isinstance(node, dict) or depth > _MAX_DEPTH:
        return TYPES
    if id(node) not in found:
        found[id(node)] = TYPES  # what a schema that contains itself says about itself
        types = _own_types(node)
        target = referred(node, schema)
        for part in [*_sequence(node.get("allOf")), *([] if target is None else [target])]:
            types &= _types_of(part, schema, found, depth + 1)
        for word in _ALTERNATIVES:
            each = [_types_of(part, schema, found, depth + 1) for part in _sequence(node.get(word))]
            types &= frozenset[str]().union(*each) if each else TYPES
        found[id(node)] = types or TYPES
    return found[id(node)]


def _own_types(node: dict[str, Any]) -> frozenset[str]:
    given = node.get("type")
    names = {name for name in ([given] if isinstance(given, str) else _sequence(given)) if _is_type(name)}
    values = [node["const"]] if "const" in node else _sequence(node.get("enum"))
    listed = {"null" if value is None else _TYPE_OF.get(type(value), "string") for value in values}
    names = (names & listed) or names or listed
    if not names and "properties" in node:
        names = {"object"}
    if not names and ("items" in node or "prefixItems" in node):
        names = {"array"}
    if names and node.get("nullable") is True:
        names = names | {"null"}
    return (frozenset(names) | (_NUMBER if "number" in names else frozenset())) or TYPES


def referred(node: dict[str, Any], schema: Mapping[str, Any]) -> Any:
    """Return the schema that a node refers to inside the whole one, or None."""
    reference = node.get("$ref")
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    place: Any = schema
    for step in reference[1:].split("/")[1:]:
        key = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(place, Mapping) and key in place:
            place = place[key]
        elif isinstance(place, list) and key.isdecimal() and int(key) < len(place):
            place = place[int(key)]
        else:
            return None
    return place


def _is_type(name: Any) -> TypeGuard[str]:
    return isinstance(name, str) and name in TYPES


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _sequence(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
