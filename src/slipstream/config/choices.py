"""Settling one choice at a time, with a record of where each value came from.

Not here: any rule about a particular option; see `resolve`.
"""

from __future__ import annotations

from typing import Any, Literal

from slipstream.config.options import AUTO, OPTION_BY_NAME, OPTIONS, Options, check_value

Origin = Literal["default", "option", "checkpoint", "hardware", "switch", "derived"]


class Choices:
    """Validated options and the origins of everything that was settled.

    Args:
        options: what the user chose.

    Raises:
        ConfigError: a value that is not allowed.
    """

    def __init__(self, options: Options) -> None:
        self._given: dict[str, Any] = {}
        for option in OPTIONS:
            value = getattr(options, option.name)
            if value is not None and not (value == AUTO and option.default == AUTO):
                self._given[option.name] = check_value(option, value)
        self._origins: dict[str, Origin] = {}
        self._notes: dict[str, str] = {}

    def is_given(self, name: str) -> bool:
        """Return whether the user settled this option."""
        return name in self._given

    def given(self, name: str) -> Any:
        """Return what the user gave, or None."""
        return self._given.get(name)

    def record(self, field: str, value: Any, origin: Origin, note: str = "") -> Any:
        """Note where a field's value comes from, and return the value."""
        self._origins[field] = origin
        self._notes.pop(field, None)
        if note:
            self._notes[field] = note
        return value

    def take(self, name: str, field: str, *, auto: Any = None, origin: Origin = "derived", note: str = "") -> Any:
        """Return the value of an option and record it.

        Args:
            name: the option.
            field: dotted field of EngineConfig that it becomes.
            auto: value when the option is open and its default is `auto`.
            origin: origin of `auto`.
            note: reason for `auto`.
        """
        if name in self._given:
            return self.record(field, self._given[name], "option")
        default = OPTION_BY_NAME[name].default
        if default == AUTO:
            return self.record(field, auto, origin, note)
        return self.record(field, default, "default")

    @property
    def origins(self) -> tuple[tuple[str, str], ...]:
        """Return (field, origin) of everything settled, in the order of settling."""
        return tuple(self._origins.items())

    @property
    def notes(self) -> tuple[tuple[str, str], ...]:
        """Return (field, reason) where there is something to say."""
        return tuple(self._notes.items())
