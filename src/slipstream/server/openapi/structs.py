"""Structs that are sent, as JSON Schema: what their encoder writes, a default included. Requests: see fields."""

from __future__ import annotations

import inspect
import types
import typing
from typing import Any, Literal

import msgspec

from slipstream.server.openapi.values import Schema

REF = "#/components/schemas/{}"
_NAMES: dict[Any, Schema] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    type(None): {"type": "null"},
    Any: {},
    object: {},
}


def schema_of(hint: Any, components: dict[str, Schema]) -> Schema:
    """Return the schema of a type, and add the structs that it is made of.

    Args:
        hint: a struct, a union, a list, a mapping, a literal or a plain type.
        components: schema by name of the struct; added to.

    Raises:
        TypeError: a type that no answer should have, or two structs of one name.
    """
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _reference(hint, components)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        branches = [schema_of(item, components) for item in arguments if item is not msgspec.UnsetType]
        return branches[0] if len(branches) == 1 else {"anyOf": branches}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is typing.Annotated:
        return schema_of(arguments[0], components)
    if hint in (list, dict):
        return {"type": "array"} if hint is list else {"type": "object"}
    if inspect.isclass(origin) and issubclass(origin, list | tuple | typing.Sequence):
        return {"type": "array", "items": schema_of(arguments[0], components)}
    if inspect.isclass(origin) and issubclass(origin, typing.Mapping):
        return {"type": "object", "additionalProperties": schema_of(arguments[1], components)}
    if hint in _NAMES:
        return dict(_NAMES[hint])
    raise TypeError(f"an answer has a field of type {hint!r}, which has no schema here: add it, or use another type")


def _reference(struct: type[msgspec.Struct], components: dict[str, Schema]) -> Schema:
    name = struct.__name__
    origin = f"{struct.__module__}.{struct.__qualname__}"
    known = components.setdefault(name, {"x-struct": origin})
    if known["x-struct"] != origin:
        raise TypeError(f"{known['x-struct']} and {origin} have the same name: rename one of them")
    if len(known) == 1:
        known["type"] = "object"
        known["description"] = inspect.getdoc(struct) or ""
        known.update(_fields(struct, components))
    return {"$ref": REF.format(name)}


def _fields(struct: type[msgspec.Struct], components: dict[str, Schema]) -> Schema:
    config = struct.__struct_config__
    properties: dict[str, Schema] = {}
    required: list[str] = []
    if config.tag_field is not None:
        properties[config.tag_field] = {"const": config.tag}
        required.append(config.tag_field)
    for field in msgspec.structs.fields(struct):
        properties[field.encode_name] = schema_of(field.type, components)
        can_lack = msgspec.UnsetType in typing.get_args(field.type) or (config.omit_defaults and not field.required)
        if not can_lack:
            required.append(field.encode_name)
    return {"properties": properties, "required": required}
