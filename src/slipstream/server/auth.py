"""Ask for the API key, before anything else looks at the request."""

from __future__ import annotations

import hmac

from starlette.types import ASGIApp, Receive, Scope, Send

from slipstream.base.errors import ConfigError
from slipstream.server.errors import UNAUTHORIZED, plain_error

OPEN_PATHS = frozenset({"/health", "/metrics"})
"""Answered without a key: probes and scrapers rarely have one, and nothing of a user is in them."""

_SCHEME = b"bearer "


class ApiKeyCheck:
    """ASGI middleware that answers 401 unless the request carries the key.

    Args:
        app: what is behind it.
        api_key: the key; white space around it does not count.

    Raises:
        ConfigError: it is empty.
    """

    def __init__(self, app: ASGIApp, api_key: str) -> None:
        self._app = app
        # White space around a header's value does not survive the way here, so it cannot be part of a key.
        self._api_key = api_key.strip().encode("utf-8")
        if not self._api_key:
            raise ConfigError("the API key is empty: give one, or none at all")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 401."""
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS or self._has_key(scope):
            await self._app(scope, receive, send)
            return
        answer = plain_error(
            401,
            UNAUTHORIZED,
            "the API key is missing or wrong: send it as 'Authorization: Bearer KEY'",
            {"WWW-Authenticate": "Bearer"},
        )
        await answer(scope, receive, send)

    def _has_key(self, scope: Scope) -> bool:
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        is_bearer = given[: len(_SCHEME)].lower() == _SCHEME
        # The comparison takes as long for a near miss as for a far one.
        return hmac.compare_digest(given[len(_SCHEME) :].strip(), self._api_key) and is_bearer
