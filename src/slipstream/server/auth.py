"""Ask for an API key, before anything else looks at the request."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from slipstream.base.errors import ConfigError
from slipstream.server.errors import UNAUTHORIZED, plain_error

OPEN_PATHS = frozenset({"/health", "/metrics", "/"})
"""Answered without a key: probes and scrapers rarely have one, and nothing of a user is in them."""

OPEN_BEGINNING = "/static/"
"""Where the files of the page at / lie; it asks for a key itself."""

_AUTHORIZATION = b"authorization"
_X_API_KEY = b"x-api-key"
_SCHEME = b"bearer "


class ApiKeyCheck:
    """ASGI middleware that answers 401 unless the request carries one of the keys.

    Args:
        app: what is behind it.
        api_keys: the keys; white space around one does not count.

    Raises:
        ConfigError: one is empty, or there is none.
    """

    def __init__(self, app: ASGIApp, api_keys: Sequence[str]) -> None:
        self._app = app
        # White space around a header's value does not survive the way here, so it cannot be part of a key.
        # A key typed in another encoding than UTF-8 is compared byte by byte too.
        keys = [key.strip().encode("utf-8", "surrogateescape") for key in api_keys]
        if not keys or not all(keys):
            raise ConfigError("the API key is empty: give one, or none at all")
        # Digests are all of one length, so that a comparison does not tell that of a key either.
        self._digests = tuple(_digest(key) for key in keys)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 401."""
        if scope["type"] != "http" or is_open(scope["path"]) or self._has_key(scope):
            await self._app(scope, receive, send)
            return
        answer = plain_error(
            401,
            UNAUTHORIZED,
            "the API key is missing or wrong: send it as 'Authorization: Bearer KEY' or 'x-api-key: KEY'",
            {"WWW-Authenticate": "Bearer"},
            path=scope["path"],
        )
        await answer(scope, receive, send)

    def _has_key(self, scope: Scope) -> bool:
        headers = scope["headers"]
        bearer = next((value for name, value in headers if name == _AUTHORIZATION), b"")
        is_bearer = bearer[: len(_SCHEME)].lower() == _SCHEME
        plain = next((value for name, value in headers if name == _X_API_KEY), b"")
        # Every comparison is made, and each takes as long for a near miss as for a far one.
        return self._is_key(bearer[len(_SCHEME) :]) & is_bearer | self._is_key(plain)

    def _is_key(self, given: bytes) -> bool:
        digest, is_known = _digest(given.strip()), False
        for known in self._digests:
            is_known |= hmac.compare_digest(digest, known)
        return is_known


def is_open(path: str) -> bool:
    """Return whether a path is answered without a key."""
    return path in OPEN_PATHS or path.startswith(OPEN_BEGINNING)


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
