"""JSON Schema of the project's own document, checked by the jsonschema package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from jsonschema import Draft202012Validator
from pydantic import ValidationError

from slipstream.base.errors import RequestError


def validator(schema: Any, components: Mapping[str, Any] | None = None) -> Callable[[Any], bool]:
    """Return what tells whether a value satisfies a schema.

    Args:
        schema: refers to components as an OpenAPI document does.
        components: schema by name.
    """
    whole = {"allOf": [schema], "components": {"schemas": dict(components or {})}}
    Draft202012Validator.check_schema(whole)
    return Draft202012Validator(whole).is_valid


def is_valid(value: Any, schema: Any) -> bool:
    """Return whether a value satisfies a schema without references."""
    return Draft202012Validator(schema).is_valid(value)


def parses(parse: Callable[[Any], object], value: Any) -> bool:
    """Return whether a parser takes a value; the other side of `is_valid`."""
    try:
        parse(value)
    except (RequestError, ValidationError):
        return False
    return True
