"""The places of a tool's schema, read strictly: what a grammar can enforce there, or why it cannot.

Its types are those that the parser sees (shapes), so that what the grammar lets through is read back as it was meant.
Not here: the grammar itself (constrain).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from slipstream.base.errors import UnsupportedFeature
from slipstream.text.grammar.refusals.keywords import find_fault
from slipstream.text.tools.shapes import Shape, referred
from slipstream.text.tools.syntax import is_element_name

ANY: dict[str, Any] = {}
"""The schema that allows everything."""

_MAX_DEPTH = 64
_COMMENTS = frozenset(
    {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "format", "$comment", "$id"}
    | {"$schema", "$defs", "definitions", "contentEncoding", "contentMediaType", "propertyOrdering"}
)
_TYPE = frozenset({"type", "nullable"})
_OBJECT_RULES = frozenset({"properties", "required", "additionalProperties"})
_LIST_RULES = frozenset({"items", "minItems", "maxItems"})
_COMBINATIONS = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "$ref", "$dynamicRef"})
_STRING_RULES = frozenset({"minLength", "maxLength", "pattern"})
_DEFINITIONS = ("#/$defs/", "#/definitions/")


class Place:
    """One place of a tool's schema.

    Args:
        raw: the schema at this place: an object, true or false.
        schema: the whole schema, in which references are looked up.
        path: names the place in errors.
        shape: what the parser knows of the place; None is the schema itself.

    Attributes:
        nodes: alternatives, references followed; each is an object, and none means that no value is allowed.
        types: the types of all alternatives.
    """

    def __init__(self, raw: Any, schema: Mapping[str, Any], path: str, shape: Shape | None = None) -> None:
        self.raw = raw
        self.schema = schema
        self.path = path
        self._shape = Shape((raw,), schema) if shape is None else shape
        self.types = self._shape.types
        self.nodes: list[dict[str, Any]] = self._alternatives(raw, 0)

    @property
    def key(self) -> tuple[int, int]:
        """The same for the same part of the same schema."""
        return id(self.schema), id(self.raw)

    @property
    def is_free(self) -> bool:
        """Whether any value at all is allowed."""
        return any(_is_plain(node, _COMMENTS) for node in self.nodes)

    def member(self, name: str) -> Place:
        """Return the place of a member of an object with one alternative."""
        node = self.only_node() or ANY
        declared = node.get("properties", {})
        raw = declared[name] if name in declared else node.get("additionalProperties", True)
        return Place(ANY if raw is True else raw, self.schema, f"{self.path}.{name}", self._shape.member(name))

    def item(self) -> Place:
        """Return the place of an item of a list with one alternative."""
        raw = (self.only_node() or ANY).get("items", True)
        return Place(ANY if raw is True else raw, self.schema, f"{self.path}[]", self._shape.item(0))

    def only_node(self) -> dict[str, Any] | None:
        """Return the alternative besides null, if there is exactly one."""
        others = [node for node in self.nodes if self.types_of(node) != {"null"}]
        return others[0] if len(others) == 1 else None

    def types_of(self, node: Mapping[str, Any]) -> frozenset[str]:
        """Return the types of one alternative."""
        return Shape((node,), self.schema).types

    def is_plain_object(self, node: Mapping[str, Any]) -> bool:
        """Return whether an alternative asks for named members and nothing else."""
        properties, required = node.get("properties", {}), node.get("required", [])
        return (
            _is_plain(node, _COMMENTS | _TYPE | _OBJECT_RULES)
            and isinstance(properties, dict)
            and isinstance(required, list)
            and all(isinstance(name, str) and is_element_name(name) for name in (*properties, *required))
        )

    def is_plain_list(self, node: Mapping[str, Any]) -> bool:
        """Return whether an alternative asks for items of one kind and nothing else."""
        counts = (node.get("minItems", 0), node.get("maxItems", 0))
        return (
            _is_plain(node, _COMMENTS | _TYPE | _LIST_RULES)
            and isinstance(node.get("items"), dict)
            and all(type(count) is int and count >= 0 for count in counts)
        )

    def string_rules(self, node: Mapping[str, Any]) -> dict[str, Any]:
        """Return pattern and lengths of an alternative that allows strings; refuse what cannot be enforced."""
        for word in sorted(_COMBINATIONS & node.keys()):
            self.refuse(f"gives a string the rule {word!r}, which cannot be enforced in the text of a call")
        return {word: node[word] for word in sorted(_STRING_RULES) if word in node}

    def as_json(self, node: Mapping[str, Any] | None = None, types: frozenset[str] | None = None) -> dict[str, Any]:
        """Return the schema of this place on its own, for JSON text.

        Args:
            node: the alternative; None is all of them.
            types: the only types that are wanted.
        """
        given = self.raw if node is None else node
        own = {word: value for word, value in given.items() if word not in _COMMENTS}
        if types is not None:
            own["type"] = sorted(types - {"integer"} if "number" in types else types)
        if (references := _references([own])) and isinstance(self.schema, dict):
            own |= {word: self.schema[word] for word in ("$defs", "definitions") if word in self.schema}
            references += _references([own])
        for reference in references:
            if not isinstance(reference, str) or not reference.startswith(_DEFINITIONS):
                self.refuse(f"refers to {str(reference)[:60]!r}: references to $defs can be enforced")
        if (fault := find_fault(own)) is not None:
            self.refuse(f"is refused {fault}")
        return own

    def refuse(self, reason: str) -> NoReturn:
        """Refuse to enforce this place.

        Raises:
            UnsupportedFeature: always.
        """
        raise UnsupportedFeature(
            f"the parameters of tool {self.path} cannot be enforced: the schema there {reason}; change it, or leave "
            "arguments free with tool_choice 'auto' and no tool with strict",
            param="tools",
            code="unsupported_schema",
        )

    def _alternatives(self, node: Any, depth: int) -> list[dict[str, Any]]:
        if depth > _MAX_DEPTH:
            self.refuse("refers to itself and nothing else")
        if node is True:
            return [ANY]
        if node is False:
            return []
        if not isinstance(node, dict):
            self.refuse("is neither an object nor true or false")
        parts = [part for word in ("$ref", "allOf") for part in self._combined(node, word)]
        choices = [word for word in ("anyOf", "oneOf") if isinstance(node.get(word), list)]
        rest = node.keys() - _COMMENTS - {"$ref", "allOf", *choices}
        if rest or len(parts) + len(choices) != 1:
            return [node]
        if parts:
            return self._alternatives(parts[0], depth + 1)
        word = choices[0]
        each = [self._alternatives(part, depth + 1) for part in node[word]]
        types = [self.types_of(part) for found in each for part in found]
        # One of several must hold alone: certain only where no value has the types of two of them.
        if word == "oneOf" and sum(map(len, types)) > len(frozenset[str]().union(*types)):
            return [node]
        return [part for found in each for part in found]

    def _combined(self, node: dict[str, Any], word: str) -> list[Any]:
        if word not in node:
            return []
        if word == "allOf":
            return node[word] if isinstance(node[word], list) else []
        target = referred(node, self.schema)
        if target is None:
            self.refuse(f"refers to {str(node[word])[:60]!r}, which it does not hold")
        return [target]


def _is_plain(node: Mapping[str, Any], known: frozenset[str]) -> bool:
    return all(word in known or word.startswith("x-") for word in node)


def _references(left: list[Any]) -> list[Any]:
    """Return every `$ref` in some schemas."""
    found: list[Any] = []
    while left:
        part = left.pop()
        if isinstance(part, dict):
            found += [part["$ref"]] if "$ref" in part else []
            left += part.values()
        elif isinstance(part, list):
            left += part
    return found
