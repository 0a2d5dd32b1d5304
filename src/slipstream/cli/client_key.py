"""The key of a server elsewhere, for the commands that are its clients: as typed, or from the environment.

Not here: the keys that a server of this program asks for (config.resolve).
"""

from __future__ import annotations

import typer

from slipstream.base.switches import API_KEY, environment_switches

API_KEY_OPTION = typer.Option("--api-key", help=f"Key that the server asks for.  [default: {API_KEY}, if it is set]")
KEY_REMEDY = f"give it with --api-key, or in {API_KEY}"


def client_key(typed: str | None) -> str | None:
    """Return the key to send: the typed one, else that of the environment, else None.

    Raises:
        ConfigError: a variable of the environment that is no switch.
    """
    if typed is not None:
        return typed
    found = environment_switches().api_key
    return (found.strip() or None) if found is not None else None
