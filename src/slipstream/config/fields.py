"""Strict reading of one JSON object of a checkpoint: typed fields, no silent default, no silent leftover.

Not here: what the fields mean; see `checkpoint` and `drafter`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from slipstream.base.errors import CheckpointError

REQUIRED: Any = object()
"""Default of a field that must be present."""

_MAX_INTEGER = 2**1000
"""Beyond it an integer is no float."""


def read_json(path: Path, *, purpose: str) -> dict[str, Any]:
    """Return the JSON object in a file.

    Args:
        path: the file.
        purpose: what the file is for; part of the error message.

    Raises:
        CheckpointError: the file is missing, unreadable, not JSON (half-written, say) or not an object.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise CheckpointError(
            f"{path}: no such file; it holds {purpose}. Give a folder with a complete checkpoint"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path}: cannot be read as text ({error}); it holds {purpose}") from None
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise CheckpointError(
            f"{path}: not valid JSON (line {error.lineno}, column {error.colno}: {error.msg}). "
            "The file may be half-written: copy or download it again"
        ) from None
    except (RecursionError, ValueError) as error:
        raise CheckpointError(
            f"{path}: not a configuration that can be read ({type(error).__name__}: {error}); it holds {purpose}. "
            "Copy or download it again"
        ) from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: holds a JSON {type(value).__name__}, an object with fields is needed")
    return value


class Fields:
    """One JSON object whose fields are taken by name and type; what nobody took is reported.

    Args:
        values: the object.
        where: file and section, for messages, e.g. `/models/m3/config.json: text_config`.
    """

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self._values = values
        self._taken: set[str] = set()
        self._sections: dict[str, Fields] = {}
        self.where = where

    @property
    def values(self) -> dict[str, Any]:
        """Return a copy of the whole object, for questions about its kind."""
        return dict(self._values)

    def fail(self, name: str, value: object, allowed: str) -> CheckpointError:
        """Return the error for a field's value; the caller raises it."""
        shown = "a number of many digits" if isinstance(value, int) and abs(value) > _MAX_INTEGER else repr(value)
        return CheckpointError(f"{self.where}.{name}={shown} is not supported; allowed: {allowed}")

    def has(self, name: str) -> bool:
        """Return whether the field is present and not null."""
        return self._values.get(name) is not None

    def raw(self, name: str, default: Any = None) -> Any:
        """Return a field as it is; null counts as absent."""
        self._taken.add(name)
        value = self._values.get(name)
        if value is not None:
            return value
        if default is REQUIRED:
            raise CheckpointError(f"{self.where}: the field {name} is missing")
        return default

    def integer(self, name: str, default: Any = REQUIRED, *, minimum: int = 0) -> int:
        """Return a whole number of at least `minimum`."""
        value = self.raw(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise self.fail(name, value, f"a whole number of at least {minimum}")
        return value

    def number(self, name: str, default: Any = REQUIRED, *, above: float = 0.0) -> float:
        """Return a finite number above `above`."""
        value = self.raw(name, default)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        # An integer too long for a float makes isfinite raise instead of answering.
        if not is_number or abs(value) > _MAX_INTEGER or not math.isfinite(value) or value <= above:
            raise self.fail(name, value, f"a finite number above {above:g}")
        return float(value)

    def flag(self, name: str, default: Any = REQUIRED) -> bool:
        """Return true or false."""
        value = self.raw(name, default)
        if not isinstance(value, bool):
            raise self.fail(name, value, "true or false")
        return value

    def choice(self, name: str, allowed: Collection[Any], default: Any = REQUIRED, *, why: str = "") -> Any:
        """Return a value of a known switch; any other value stops the load."""
        value = self.raw(name, default)
        if not any(type(value) is type(item) and value == item for item in allowed):
            words = ", ".join(json.dumps(item) for item in allowed)
            raise self.fail(name, value, f"{words}{'; ' + why if why else ''}")
        return value

    def integers(self, name: str, default: Any = REQUIRED, *, minimum: int = 0) -> tuple[int, ...]:
        """Return a list of whole numbers of at least `minimum`."""
        value = self.raw(name, default)
        is_list = isinstance(value, list | tuple)
        if not is_list or any(isinstance(x, bool) or not isinstance(x, int) or x < minimum for x in value):
            raise self.fail(name, value, f"a list of whole numbers of at least {minimum}")
        return tuple(value)

    def texts(self, name: str, default: Any = REQUIRED) -> tuple[str, ...]:
        """Return a list of strings."""
        value = self.raw(name, default)
        if not isinstance(value, list | tuple) or any(not isinstance(item, str) for item in value):
            raise self.fail(name, value, "a list of strings")
        return tuple(value)

    def section(self, name: str) -> Fields | None:
        """Return a nested object, the same one each time, or None when it is absent."""
        if name in self._sections:
            return self._sections[name]
        value = self.raw(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.fail(name, value, "an object with fields")
        self._sections[name] = Fields(value, f"{self.where}.{name}")
        return self._sections[name]

    def ignore(self, names: Iterable[str]) -> None:
        """Mark fields that are understood and do not matter to inference."""
        self._taken.update(names)

    def unknown(self) -> tuple[str, ...]:
        """Return the fields that nobody took, those of sections as `section.name`, sorted."""
        own = set(self._values) - self._taken
        nested = {f"{name}.{field}" for name, part in self._sections.items() for field in part.unknown()}
        return tuple(sorted(own | nested))
