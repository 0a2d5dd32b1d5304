"""What a call is named in logs and answers: by its client, or by us."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable

from fastapi import Request
from starlette.types import Scope

from slipstream.frontend.call import Call

HEADER = b"x-request-id"
OTHER_HEADER = b"request-id"
"""The same id under the name that Anthropic clients read."""

MAX_ID_CHARS = 128

_SANE_ID = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._:/+=@-]{0,%d}" % (MAX_ID_CHARS - 1))
_STATE = "state"
_CALL = "call"


def draw_id() -> str:
    """Return a new id."""
    return f"req-{uuid.uuid4().hex}"


def choose_id(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the client's own id if it is one that a log line can hold, else a new one."""
    given = next((value for name, value in headers if name == HEADER), b"")
    return given.decode("ascii") if _SANE_ID.fullmatch(given) else draw_id()


def name_call(scope: Scope) -> Call:
    """Return the call that a request is, and keep it with the request."""
    call = Call(choose_id(scope["headers"]))
    scope.setdefault(_STATE, {})[_CALL] = call
    return call


def call_of(request: Request) -> Call:
    """Return the call that a request is."""
    state = request.scope.get(_STATE, {})
    return state[_CALL] if _CALL in state else name_call(request.scope)
