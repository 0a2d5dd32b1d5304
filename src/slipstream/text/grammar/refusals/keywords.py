"""What of a JSON schema can be enforced while text is generated; what cannot is refused by place, keyword and remedy.

Keywords that no standard knows change nothing, as the standard has it. Not here: sizes (limits), and whether any value
satisfies the schema, which compiling it shows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from slipstream.base.errors import RequestError

SUPPORTED: tuple[str, ...] = (
    *("type", "enum", "const", "anyOf", "allOf", "oneOf", "$ref", "$defs", "definitions", "$anchor", "$id"),
    *("properties", "required", "additionalProperties", "patternProperties", "minProperties", "maxProperties"),
    *("items", "prefixItems", "additionalItems", "minItems", "maxItems"),
    *("minLength", "maxLength", "pattern", "format"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
)
"""Keywords that are enforced."""

COMMENTS: tuple[str, ...] = (
    *("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment", "$schema"),
    *("contentEncoding", "contentMediaType", "contentSchema", "discriminator", "nullable"),
)
"""Keywords that change nothing."""

_LATER = "leave it out and check the value when it has arrived"
_AS_UNION = "write the cases out with anyOf"
UNSUPPORTED: dict[str, str] = {
    "uniqueItems": _LATER,
    "contains": _LATER,
    "minContains": _LATER,
    "maxContains": _LATER,
    "unevaluatedItems": "give items: false, or prefixItems with items: false",
    "unevaluatedProperties": "give additionalProperties: false in the schema that names the properties",
    "propertyNames": "give patternProperties with additionalProperties: false",
    "dependentRequired": _AS_UNION,
    "dependentSchemas": _AS_UNION,
    "dependencies": _AS_UNION,
    "not": "say what is allowed instead: enum, pattern, or other types",
    "if": _AS_UNION,
    "then": _AS_UNION,
    "else": _AS_UNION,
    "$dynamicRef": "give $ref to a definition in $defs",
    "$dynamicAnchor": "give the definition a name in $defs",
    "$recursiveRef": "give $ref to a definition in $defs, or to #",
}
"""Keywords that are refused, and what to do instead."""

FORMATS: tuple[str, ...] = (
    *("date-time", "date", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri", "unknown"),
)
"""Values of `format` that are enforced; every other one is refused."""

TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")

_IN_USE = ("properties", "patternProperties")
_SCHEMAS_BY_NAME = (*_IN_USE, "$defs", "definitions")
_SCHEMA_LISTS = ("anyOf", "allOf", "oneOf", "prefixItems")
_ONE_SCHEMA = ("items", "additionalProperties", "additionalItems")
_LOOK_AROUND = re.compile(r"(?:\\.|[^\\])*?\(\?(?:<?[=!])", re.DOTALL)
_BACK_REFERENCE = re.compile(r"(?:\\[^1-9]|[^\\])*\\(?:[1-9]|k<)", re.DOTALL)


def check_keywords(where: str, schema: Any) -> None:
    """Refuse what of a schema cannot be enforced.

    Args:
        where: begins the message.
        schema: parsed JSON, as a whole: references are looked up in it.

    Raises:
        RequestError: it names the place as a JSON pointer, the keyword, and what to do.
    """
    if (fault := find_fault(schema)) is not None:
        raise RequestError(f"{where}: {fault}", code="invalid_grammar")


def find_fault(schema: Any) -> str | None:
    """Return the first thing in a schema that cannot be enforced, as `check_keywords` says it; None if all can."""
    seen: set[str] = set()
    left: list[tuple[str, Any]] = [("#", schema)]
    while left:
        start, part = left.pop()
        # A definition that nothing refers to is not read.
        for path, node in walk(part, start, _IN_USE):
            if path in seen:
                continue
            seen.add(path)
            reference = node.get("$ref")
            reason = _refusal(node) or (_reference_refusal(reference, schema) if isinstance(reference, str) else None)
            if reason is not None:
                return f"at {path}: {reason}"
            if isinstance(reference, str) and reference.startswith("#/"):
                left.append((reference, _find(reference[1:], schema)))
    return None


def walk(
    schema: Any, path: str = "#", by_name: tuple[str, ...] = _SCHEMAS_BY_NAME
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every schema within one, itself first, with its JSON pointer; data such as enums is none.

    Args:
        schema: parsed JSON.
        path: where it stands.
        by_name: keywords whose schemas have names.
    """
    left: list[tuple[str, Any]] = [(path, schema)]
    while left:
        path, node = left.pop()
        if not isinstance(node, dict):
            continue
        yield path, node
        inside: list[tuple[str, Any]] = []
        for name in node:
            value = node[name]
            if name in by_name and isinstance(value, dict):
                inside += [(f"{path}/{name}/{_step(key)}", part) for key, part in value.items()]
            elif (name in _SCHEMA_LISTS or name == "items") and isinstance(value, list):
                inside += [(f"{path}/{name}/{place}", part) for place, part in enumerate(value)]
            elif name in _ONE_SCHEMA:
                inside.append((f"{path}/{name}", value))
        left += reversed(inside)


def regex_refusal(pattern: str) -> str | None:
    """Return which construct of a regular expression is not supported, and what to do; None if none is seen."""
    if _LOOK_AROUND.match(pattern):
        return "look-around, (?=…), (?!…), (?<=…) or (?<!…), is not supported: write out what is allowed instead"
    if _BACK_REFERENCE.match(pattern):
        return "back-references are not supported: write out what is allowed instead"
    return None


def _refusal(node: Mapping[str, Any]) -> str | None:
    for name in node:
        if name in UNSUPPORTED:
            return f"{name!r} is not supported: {UNSUPPORTED[name]}"
    types = node.get("type")
    for name in types if isinstance(types, list) else [types] if isinstance(types, str) else []:
        if name not in TYPES:
            return f"'type' is {str(name)[:60]!r}, which is none: give one of {', '.join(TYPES)}"
    form, pattern = node.get("format"), node.get("pattern")
    if isinstance(form, str) and form not in FORMATS:
        known = ", ".join(FORMATS[:-1])
        return f"the 'format' {form[:60]!r} is not supported: leave it out, give a pattern, or one of {known}"
    if isinstance(pattern, str) and (reason := regex_refusal(pattern)) is not None:
        return f"'pattern': {reason}"
    return None


def _reference_refusal(reference: str, root: Any) -> str | None:
    outside, _, pointer = reference.partition("#")
    if outside:
        ids = {node["$id"].partition("#")[0] for _, node in walk(root) if isinstance(node.get("$id"), str)}
        if any(known == outside or known.endswith("/" + outside) for known in ids):
            return None
        return (
            f"'$ref' is {reference[:80]!r}, which is outside of this schema, and nothing is fetched: put what it means "
            "into $defs and refer to #/$defs/NAME"
        )
    if not pointer.startswith("/") or "$id" in root or _find(pointer, root) is not None:
        return None
    return f"'$ref' is {reference[:80]!r}, which this schema does not hold: define it there, or correct the name"


def _find(pointer: str, root: Any) -> Any:
    """Return what a JSON pointer leads to; None if that is nothing."""
    here = root
    for step in pointer[1:].split("/"):
        key = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(here, list):
            here = here[int(key)] if key.isdecimal() and int(key) < len(here) else None
        elif isinstance(here, dict):
            here = here.get(key)
        else:
            return None
    return here


def _step(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")[:60]
