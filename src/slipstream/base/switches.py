"""Environment switches: the one place that knows `SLIPSTREAM_*` variables. Options belong to `config.options`.

A switch is for debugging a running installation without touching its command line. An unknown name or a value that
does not parse stops the start, because a misspelt switch that does nothing is worse than none.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from slipstream.base.errors import ConfigError

PREFIX = "SLIPSTREAM_"
API_KEY = "SLIPSTREAM_API_KEY"
"""Not a switch but a secret, which has no place on a command line; see the option `api_key`."""

_TRUE = ("1", "true", "on", "yes")
_FALSE = ("0", "false", "off", "no")


@dataclass(frozen=True, slots=True)
class Switch:
    """One declared variable.

    Args:
        name: the variable.
        field: field of `Switches` that it sets.
        allowed: accepted values, lower case; the first is the default for a choice.
        help: what it does.
        owner: the room that obeys it.
    """

    name: str
    field: str
    allowed: tuple[str, ...]
    help: str
    owner: str


SWITCHES: tuple[Switch, ...] = (
    Switch(
        name="SLIPSTREAM_POISON_FREED_PAGES",
        field="poison_freed_pages",
        allowed=(*_FALSE, *_TRUE),
        help="Fill the null page and freed pages with NaN, so that a read of a page nobody owns shows in the output.",
        owner="cache",
    ),
    Switch(
        name="SLIPSTREAM_CHECK_RANKS",
        field="check_ranks",
        allowed=(*_FALSE, *_TRUE),
        help="Compare what every tensor-parallel rank decided after every step; a difference ends the engine with the "
        "rank, the step and the row.",
        owner="engine",
    ),
    Switch(
        name="SLIPSTREAM_LOG_LEVEL",
        field="log_level",
        allowed=("info", "debug", "warning", "error"),
        help="Least severe messages that the log shows.",
        owner="base",
    ),
)


@dataclass(frozen=True, slots=True)
class Switches:
    """Values of the switches. `given` names those that the environment set; the API key is none of them."""

    poison_freed_pages: bool = False
    check_ranks: bool = False
    log_level: str = "info"
    given: frozenset[str] = frozenset()
    api_key: str | None = field(default=None, repr=False)


def read_switches(environ: Mapping[str, str]) -> Switches:
    """Return the switches of an environment.

    Args:
        environ: usually os.environ.

    Raises:
        ConfigError: an unknown variable that starts with SLIPSTREAM_, or a value that does not parse.
    """
    by_name = {switch.name: switch for switch in SWITCHES}
    values: dict[str, str] = {}
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name == API_KEY:
            continue
        switch = by_name.get(name)
        if switch is None:
            # Without the common beginning, which makes any two names look alike.
            endings = [known.removeprefix(PREFIX) for known in by_name]
            near = difflib.get_close_matches(name.removeprefix(PREFIX), endings, n=1)
            hint = f"did you mean {PREFIX}{near[0]}? " if near else ""
            raise ConfigError(
                f"environment variable {name} is not a switch: {hint}allowed: {', '.join(by_name)}, {API_KEY}. Unset "
                "it; options belong on the command line"
            )
        value = environ[name].strip().lower()
        if value not in switch.allowed:
            raise ConfigError(f"{name}={environ[name]!r}: allowed: {', '.join(switch.allowed)}")
        values[switch.field] = value
    return Switches(
        poison_freed_pages=values.get("poison_freed_pages", "0") in _TRUE,
        check_ranks=values.get("check_ranks", "0") in _TRUE,
        log_level=values.get("log_level", "info"),
        given=frozenset(values),
        api_key=environ.get(API_KEY),
    )


def environment_switches() -> Switches:
    """Return the switches of this process's environment.

    Raises:
        ConfigError: see `read_switches`.
    """
    return read_switches(os.environ)
