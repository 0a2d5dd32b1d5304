"""What a caller may ask the text to be: a value that hashes, compares and crosses processes.

Not here: limits (limits) and the library's own syntax (lower). Depends on `base` only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NoReturn, cast

import msgspec

from slipstream.base.errors import RequestError, UnsupportedFeature

GrammarKind = Literal["json_object", "json_schema", "regex", "grammar", "choice", "structural"]

OWN_OPTIONS = "x-guidance"
"""A key by which a schema could change how it is read; refused, so that every schema means what the standard says."""


class GrammarSpec(msgspec.Struct, frozen=True):
    """A constraint on the text of one answer; use the class methods to build it.

    Args:
        kind: how `text` is read.
        text: canonical: JSON for json_schema, choice and structural; the source itself for regex and grammar.
        is_own: whether this project wrote it for what the caller asked, so that its text means nothing to the caller.
    """

    kind: GrammarKind
    text: str = ""
    is_own: bool = False

    @classmethod
    def json_object(cls) -> GrammarSpec:
        """Any JSON object."""
        return cls("json_object")

    @classmethod
    def json_schema(cls, schema: Mapping[str, Any] | bool | str) -> GrammarSpec:
        """JSON that a schema describes; properties come in the order in which the schema names them.

        Args:
            schema: the schema, or its JSON text.

        Raises:
            RequestError: it is not JSON, or neither an object nor true or false.
        """
        value = _read_json("json_schema", schema) if isinstance(schema, str) else schema
        return cls("json_schema", _write_json("json_schema", _check_schema("json_schema", value)))

    @classmethod
    def regex(cls, pattern: str) -> GrammarSpec:
        """Text that a regular expression matches as a whole; no look-around and no back-references."""
        return cls("regex", _check_text("regex", pattern))

    @classmethod
    def grammar(cls, source: str) -> GrammarSpec:
        """Text that a context-free grammar derives: Lark (rule `start`) or EBNF with `::=` (rule `root`)."""
        return cls("grammar", _check_text("grammar", source))

    @classmethod
    def choice(cls, texts: Sequence[str]) -> GrammarSpec:
        """One of some texts.

        Raises:
            RequestError: not a list of strings, or an empty list.
        """
        if isinstance(texts, str) or not isinstance(cast("object", texts), Sequence) or not texts:
            _refuse("choice", f"{texts!r:.200} is not allowed: give a list of at least one string")
        return cls("choice", _write_json("choice", [_check_text("choice", text) for text in texts]))

    @classmethod
    def structural(cls, value: Mapping[str, Any] | str) -> GrammarSpec:
        """Free text in which a trigger must be followed by one of some structures.

        Args:
            value: `{"structures": [{"begin", "schema", "end"}, …], "triggers": [string, …]}`, or its JSON text; a
                `"type": "structural_tag"` beside them is accepted. Every `begin` starts with a trigger.

        Raises:
            RequestError: a field is missing or of the wrong type.
            UnsupportedFeature: the form with `format`.
        """
        given = _check_mapping(_read_json("structural", value) if isinstance(value, str) else value)
        if given is None:
            _refuse("structural", "give an object with structures and triggers")
        if "format" in given:
            raise UnsupportedFeature(
                "structural: the form with `format` is not served; give `structures` and `triggers`",
                code="invalid_grammar",
            )
        unknown = set(given) - {"type", "structures", "triggers"}
        if unknown or given.get("type", "structural_tag") != "structural_tag":
            _refuse("structural", f"fields {sorted(map(str, given))} are not allowed: type, structures, triggers are")
        triggers = _check_list("triggers", given.get("triggers"))
        plain = {
            "structures": [_read_structure(item) for item in _check_list("structures", given.get("structures"))],
            "triggers": [_check_text("structural: a trigger", item, allow_empty=False) for item in triggers],
        }
        return cls("structural", _write_json("structural", plain))


def _read_structure(item: object) -> dict[str, Any]:
    fields = _check_mapping(item)
    if fields is None or set(fields) != {"begin", "schema", "end"}:
        _refuse("structural", f"{item!r:.200} is not a structure: give begin, schema and end")
    return {
        "begin": _check_text("structural: begin", fields["begin"], allow_empty=False),
        "schema": _check_schema("structural", fields["schema"]),
        "end": _check_text("structural: end", fields["end"]),
    }


def _check_mapping(value: object) -> Mapping[object, object] | None:
    """Return a mapping, and None for anything else."""
    return cast("Mapping[object, object]", value) if isinstance(value, Mapping) else None


def _check_list(name: str, value: object) -> Sequence[object]:
    if isinstance(value, str) or not isinstance(value, Sequence) or not value:
        _refuse("structural", f"{name} is missing: give a list with at least one entry")
    return cast("Sequence[object]", value)


def _check_schema(where: str, value: object) -> object:
    if not isinstance(value, (Mapping, bool)):
        _refuse(where, f"a schema is {value!r:.200}: give an object, true or false")
    if isinstance(value, Mapping) and OWN_OPTIONS in value:
        _refuse(where, f"the key {OWN_OPTIONS!r} is not allowed: remove it")
    return cast("object", value)


def _check_text(where: str, value: object, *, allow_empty: bool = True) -> str:
    if not isinstance(value, str) or not (value or allow_empty):
        _refuse(where, f"{value!r:.200} is not allowed: give a string{'' if allow_empty else ' that is not empty'}")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        _refuse(where, "the text holds a lone surrogate code point: send well-formed Unicode")
    return value


def _read_json(where: str, text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        _refuse(where, f"the text is not JSON ({error or type(error).__name__}): send valid JSON")


def _write_json(where: str, value: object) -> str:
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        _refuse(where, f"the value cannot be written as JSON ({error}): send plain JSON values")
    return _check_text(where, text)


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a JSON number")


def _refuse(where: str, reason: str) -> NoReturn:
    raise RequestError(f"{where}: {reason}", code="invalid_grammar")
