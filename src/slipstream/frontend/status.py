"""How an engine is, as a front end sees it. Not here: finding out (async_llm)."""

from __future__ import annotations

from typing import Literal

import msgspec

from slipstream.base import errors
from slipstream.base.errors import EngineError, SlipstreamError
from slipstream.wire.messages import Failed, Progress

State = Literal["loading", "ready", "draining", "dead"]


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """How the engine is.

    Args:
        state: only `ready` accepts requests.
        reason: why it is dead, or empty.
        progress: the last news of loading.
        num_streams: requests in flight.
    """

    state: State
    reason: str = ""
    progress: Progress | None = None
    num_streams: int = 0


def error_of(failed: Failed) -> SlipstreamError:
    """Return the error that an engine reported, in its own class if it is one of the project's."""
    kind = getattr(errors, failed.kind, EngineError)
    if not (isinstance(kind, type) and issubclass(kind, SlipstreamError)):
        kind = EngineError
    return kind(failed.reason)
