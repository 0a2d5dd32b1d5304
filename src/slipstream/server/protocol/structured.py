"""What a request says about the form of its text, in any of the spellings that clients use, as one constraint.

Not here: what a constraint may be (wire.grammar) and whether it can be compiled (the engine).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from slipstream.base.errors import RequestError, UnsupportedFeature
from slipstream.server.protocol.requests import MAX_CHOICES, SamplingFields
from slipstream.text.grammar.limits import GrammarLimits, refuse_large
from slipstream.text.tools.schema import ToolChoice
from slipstream.wire.grammar import GrammarSpec

GRAMMAR_CODES = ("invalid_grammar", "grammar_too_large")
"""Codes of the errors about a constraint, whoever raises them."""

_OLD_FIELDS = {"guided_json": "json", "guided_regex": "regex", "guided_choice": "choice", "guided_grammar": "grammar"}
_MEMBERS = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")
_SWITCHES = {
    "disable_fallback": "there is one implementation, so nothing falls back",
    "disable_any_whitespace": "white space between JSON values is what the standard allows",
    "disable_additional_properties": "the schema itself says additionalProperties: false",
    "whitespace_pattern": "white space between JSON values is what the standard allows",
}
_FORMATS = ("text", "json_object", "json_schema", "structural_tag")
_SCHEMA_MEMBERS = ("name", "description", "schema", "strict")


def grammar_of(request: SamplingFields) -> GrammarSpec | None:
    """Return the constraint on the text of a request; None leaves it free.

    Args:
        request: its accepted fields.

    Raises:
        RequestError: there are two constraints, or one is malformed; `param` names the field.
        UnsupportedFeature: an option of structured output that is not served.
    """
    asked = _asked(request)
    if len(asked) > 1:
        places = [place for place, _, _ in asked]
        raise RequestError(
            f"{' and '.join(places)} ask for one form of the text each: give one of them",
            param=places[1].partition(".")[0],
        )
    if not asked:
        return None
    place, kind, value = asked[0]
    with blaming(place.partition(".")[0]):
        return _build(place, kind, value)


def grammar_field(request: SamplingFields) -> str | None:
    """Return the name of the field that holds the constraint of a request; None if there is none."""
    asked = _asked(request)
    return asked[0][0].partition(".")[0] if asked else None


def field_at_fault(choice: ToolChoice, field: str | None) -> str | None:
    """Return the field that an error about the constraint of an answer is about: what binds calls is one too.

    Args:
        choice: among the tools.
        field: that holds a constraint on the text; None without one.
    """
    return "tools" if choice.mode in ("required", "named") or (choice.mode == "auto" and field is None) else field


@contextlib.contextmanager
def blaming(field: str | None) -> Iterator[None]:
    """Name the field that held a constraint in an error about it.

    Args:
        field: as `grammar_field` returns it.
    """
    try:
        yield
    except RequestError as error:
        if field is not None and error.code in GRAMMAR_CODES:
            error.param = field
        raise


def _asked(request: SamplingFields) -> list[tuple[str, str, Any]]:
    """Return (place, kind, value) of every constraint."""
    asked: list[tuple[str, str, Any]] = []
    if request.response_format is not None:
        kind = _format_kind(request.response_format)
        if kind != "text":
            asked.append(("response_format", kind, request.response_format))
    for name, value in (request.structured_outputs or {}).items():
        if value is None or (value is False and name != "json"):
            continue
        if name in _SWITCHES:
            raise UnsupportedFeature(
                f"structured_outputs.{name}: {_SWITCHES[name]}: leave it out",
                param="structured_outputs",
                code="unsupported_feature",
            )
        if name not in _MEMBERS:
            _refuse("structured_outputs", f"{name[:80]!r} is no member of it: give one of {', '.join(_MEMBERS)}")
        asked.append((f"structured_outputs.{name}", name, value))
    for name, kind in _OLD_FIELDS.items():
        value = getattr(request, name)
        if value is not None:
            asked.append((name, kind, value))
    return asked


def _format_kind(value: Mapping[str, Any]) -> str:
    kind = value.get("type")
    if kind not in _FORMATS:
        _refuse("response_format", f"type is {str(kind)[:80]!r}: give one of {', '.join(_FORMATS)}")
    allowed = {"text": (), "json_object": (), "json_schema": ("json_schema",)}.get(str(kind))
    given = {name for name, member in value.items() if member is not None}
    unknown = sorted(given - {"type", *allowed}) if allowed is not None else []
    if unknown and kind == "json_schema" and unknown[0] in _SCHEMA_MEMBERS:
        shape = '{"type": "json_schema", "json_schema": {"name": …, "schema": …}}'
        _refuse("response_format", f"{unknown[0]!r} belongs into its member json_schema: give {shape}")
    if unknown:
        _refuse("response_format", f"{unknown[0][:80]!r} is no member of one with type {kind!r}: leave it out")
    return str(kind)


def _build(place: str, kind: str, value: Any) -> GrammarSpec:
    check_volume(place, value)
    if kind == "json_object":
        if value is not True and place != "response_format":
            _refuse(place, "give true, or leave it out")
        return GrammarSpec.json_object()
    if kind == "json_schema":
        return GrammarSpec.json_schema(_schema_in(value.get("json_schema")))
    if kind == "json":
        return GrammarSpec.json_schema(value)
    if kind == "regex":
        return GrammarSpec.regex(value)
    if kind == "grammar":
        return GrammarSpec.grammar(value)
    if kind == "choice":
        if isinstance(value, list) and len(value) > MAX_CHOICES:
            _refuse(place, f"{len(value)} texts are given: give at most {MAX_CHOICES}")
        return GrammarSpec.choice(value)
    return GrammarSpec.structural(value)


def _schema_in(value: Any) -> Mapping[str, Any] | bool:
    """Return the schema in the `json_schema` of a response_format; its other members say nothing about the text."""
    where = "response_format.json_schema"
    if not isinstance(value, dict):
        _refuse(where, "give an object with name and schema")
    unknown = sorted(set(value) - set(_SCHEMA_MEMBERS))
    if unknown:
        _refuse(where, f"{unknown[0][:80]!r} is no member of it: give {', '.join(_SCHEMA_MEMBERS)}")
    if not isinstance(value.get("name"), str) or not value["name"]:
        _refuse(where, "name is missing: give a string")
    if not isinstance(value.get("description", ""), str | None):
        _refuse(where, "description is no string")
    if not isinstance(value.get("strict"), bool | None):
        _refuse(where, "strict is neither true, false nor null; the schema is always kept to")
    if not isinstance(value.get("schema"), dict | bool):
        _refuse(where, "schema is missing: give a JSON schema, or ask for json_object")
    return value["schema"]


def check_volume(place: str, value: object) -> None:
    """Refuse a value that is larger than any constraint may be, without reading more of it than that."""
    limit = GrammarLimits().max_text_bytes
    volume, stack = 0, [value]
    while stack and volume <= limit:
        here = stack.pop()
        volume += len(here) if isinstance(here, (str, list, dict)) else 1
        if isinstance(here, dict):
            volume += sum(map(len, here)) if len(here) <= limit else 0
            stack += here.values() if len(here) <= limit else ()
        elif isinstance(here, list) and len(here) <= limit:
            stack += here
    if volume > limit:
        refuse_large(f"{place}: it is longer than the {limit} bytes that are allowed: send a smaller one")


def _refuse(place: str, reason: str) -> NoReturn:
    raise RequestError(f"{place}: {reason}", param=place.partition(".")[0], code="invalid_grammar")
