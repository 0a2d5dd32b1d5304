"""Objects inside a request: which fields they have, as data, and errors that name the place.

For what is too deep for a request model: the items of a conversation, tools, choices. The rules are those of `fields`:
a field is accepted, ignored, refused or unknown, and null counts as absent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slipstream.base.errors import RequestError, UnsupportedFeature
from slipstream.server.protocol.fields import Ignored, Refused, is_neutral

_MAX_SHOWN = 60
_KINDS: dict[type, str] = {
    type(None): "null",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "a list",
    dict: "an object",
}


@dataclass(frozen=True)
class Shape:
    """The fields of one kind of object.

    Args:
        accepts: the allowed types of each accepted field.
        needs: accepted fields that must be there.
        ignored, refused: see `fields`.
    """

    accepts: Mapping[str, tuple[type, ...]]
    needs: tuple[str, ...] = ()
    ignored: tuple[Ignored, ...] = ()
    refused: tuple[Refused, ...] = field(default=())

    def read(self, value: object, where: str) -> dict[str, Any]:
        """Return the accepted fields that are there and not null.

        Args:
            value: of the request.
            where: its place, for errors.

        Raises:
            RequestError: no object, a field that is unknown, missing or of another type.
            UnsupportedFeature: a refused field asks for something.
        """
        if not isinstance(value, dict):
            raise RequestError(f"{where} is {kind_of(value)}: give an object with {self._names()}", param=where)
        refused = {entry.name: entry for entry in self.refused}
        ignored = {entry.name for entry in self.ignored}
        found: dict[str, Any] = {}
        for name, part in value.items():
            at = f"{where}.{name}"[:120]
            if name in self.accepts:
                if part is not None:
                    found[name] = _checked(part, self.accepts[name], at)
            elif name in refused:
                if not is_neutral(part, refused[name]):
                    raise UnsupportedFeature(f"{at}: {refused[name].reason}", param=at, code="unsupported_feature")
            elif name not in ignored:
                raise RequestError(
                    f"{at} is not a known field: leave it out; allowed are {self._names()}",
                    param=at,
                    code="unknown_field",
                )
        for name in self.needs:
            if name not in found:
                raise RequestError(f"{where}.{name} is missing: give it", param=f"{where}.{name}")
        return found

    def _names(self) -> str:
        return ", ".join(self.accepts)


def kind_of(value: object) -> str:
    """Return what JSON calls the type of a value, with its article."""
    return _KINDS.get(type(value), "another value")


def show(value: object) -> str:
    """Return a short text of a value, for an error."""
    if isinstance(value, list | dict):
        return kind_of(value)
    text = repr(value[:_MAX_SHOWN] if isinstance(value, str) else value)
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 1] + "…"


def refuse_kind(kind: object, allowed: Sequence[str], where: str, reason: str) -> UnsupportedFeature:
    """Return the error for an object whose `type` is not among those that are served.

    Args:
        kind: its `type`.
        allowed: the types that are served.
        where: place of the object.
        reason: why others are not.
    """
    message = f"{where}.type={show(kind)} is not served: {reason}; allowed: {', '.join(allowed)}"
    return UnsupportedFeature(message, param=f"{where}.type", code="unsupported_feature")


def check_count(count: int, limit: int, what: str, param: str) -> None:
    """Refuse more items than a body may hold; called before a single item is looked at.

    Raises:
        RequestError: there are more.
    """
    if count > limit:
        raise RequestError(f"{param} holds {count} {what}: give at most {limit}", param=param)


def _checked(value: object, kinds: tuple[type, ...], where: str) -> object:
    if type(value) in kinds:
        return value
    names = " or ".join(dict.fromkeys(_KINDS[kind] for kind in kinds))
    raise RequestError(f"{where} is {kind_of(value)}: give {names}", param=where)
