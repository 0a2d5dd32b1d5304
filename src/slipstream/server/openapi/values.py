"""Building blocks of JSON Schema for values that parsers check by hand: what a request model calls any.

Each schema is as strict as its parser where JSON Schema can be; what depends on other fields is left to the parser.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slipstream.server.protocol.shapes import Shape

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
SOME_TEXT: Schema = {"type": "string", "minLength": 1}
BOOLEAN: Schema = {"type": "boolean"}
OBJECT: Schema = {"type": "object"}
_TYPES: Mapping[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
}


def closed(properties: Mapping[str, Schema], *required: str) -> Schema:
    """Return the schema of an object with these fields and no other; null counts as absent."""
    return {
        "type": "object",
        "properties": {name: part if name in required else nullable(part) for name, part in properties.items()},
        "required": list(required),
        "additionalProperties": False,
    }


def nullable(schema: Schema) -> Schema:
    """Return a schema that takes null besides."""
    if schema.get("type") == "null" or None in schema.get("enum", ()) or not set(schema) - {"description"}:
        return schema
    outside = {key: schema[key] for key in ("description", "default") if key in schema}
    inside = {key: value for key, value in schema.items() if key not in outside}
    if set(inside) == {"anyOf"}:
        has_null = {"type": "null"} in inside["anyOf"]
        return {"anyOf": [*inside["anyOf"], *([] if has_null else [{"type": "null"}])], **outside}
    return {"anyOf": [inside, {"type": "null"}], **outside}


def list_of(items: Schema, *, min_items: int = 0, max_items: int | None = None) -> Schema:
    """Return the schema of a list."""
    limits = {"minItems": min_items, "maxItems": max_items}
    return {"type": "array", "items": items, **{key: value for key, value in limits.items() if value}}


def one_of(*words: str) -> Schema:
    """Return the schema of one of some words."""
    return {"enum": list(words)}


def shape_schema(shape: Shape, parts: Mapping[str, Schema] | None = None, *needs: str) -> Schema:
    """Return the schema of an object that a `Shape` reads.

    Args:
        shape: its fields.
        parts: schemas of accepted fields about whose values the parser says more than their type.
        needs: fields that the parser needs besides.
    """
    properties: dict[str, Schema] = {}
    for name, kinds in shape.accepts.items():
        types = [_TYPES[kind] for kind in kinds]
        properties[name] = (parts or {}).get(name) or {"type": types[0] if len(types) == 1 else types}
    for ignored in shape.ignored:
        properties[ignored.name] = {"description": f"ignored: {ignored.reason}"}
    for refused in shape.refused:
        neutral = [*refused.neutral, None]
        properties[refused.name] = {"enum": neutral, "description": f"not served: {refused.reason}"}
    return closed(properties, *shape.needs, *needs)
