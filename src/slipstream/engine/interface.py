"""What a front end asks of an engine, wherever it runs. Not here: starting one (spawn); anything with torch."""

from __future__ import annotations

from typing import Protocol

from slipstream.wire.messages import ToFrontend
from slipstream.wire.request import Request


class SyncEngine(Protocol):
    """An engine that moves while it is polled. The first message that `poll` returns is `Ready`."""

    def submit(self, request: Request) -> None:
        """Queue a request."""
        ...

    def abort(self, request_id: str) -> None:
        """End a request; unknown ids are ignored."""
        ...

    def poll(self, timeout_s: float) -> list[ToFrontend]:
        """Return the news, after at most `timeout_s` seconds of waiting for some."""
        ...

    def close(self) -> None:
        """End the engine. May be called twice."""
        ...


class AsyncEngineClient(Protocol):
    """The asyncio side of an engine elsewhere."""

    def submit(self, request: Request) -> None:
        """Queue a request."""
        ...

    def abort(self, request_id: str) -> None:
        """End a request; unknown ids are ignored."""
        ...

    async def receive(self) -> ToFrontend:
        """Wait for the next message; `Failed` once the engine is gone, however it went."""
        ...

    async def close(self) -> None:
        """End the engine and wait until it is gone. May be called twice."""
        ...
