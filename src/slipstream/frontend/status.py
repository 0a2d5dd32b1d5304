"""How an engine is, as a front end sees it. Not here: finding out (async_llm)."""

from __future__ import annotations

from typing import Literal

import msgspec

from slipstream.base import errors
from slipstream.base.errors import EngineError, RequestError, SlipstreamError
from slipstream.wire.messages import Failed, Progress, RequestOutput

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
    return _class_named(failed.kind)(failed.reason)


def error_of_output(output: RequestOutput) -> SlipstreamError:
    """Return the error that ended or refused one request, in its own class if the engine named one."""
    reason = output.error or "the engine ended the request"
    kind = EngineError if output.error_kind is None else _class_named(output.error_kind)
    return kind(reason, code=output.error_code) if issubclass(kind, RequestError) else kind(reason)


def _class_named(name: str) -> type[SlipstreamError]:
    kind = getattr(errors, name, EngineError)
    return kind if isinstance(kind, type) and issubclass(kind, SlipstreamError) else EngineError
