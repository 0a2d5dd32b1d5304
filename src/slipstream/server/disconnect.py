"""Notice a client that leaves before its answer begins. One that leaves within a stream: see sse."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

from fastapi import Request
from starlette.requests import ClientDisconnect
from starlette.types import Receive

_Result = TypeVar("_Result")


async def wait_for_disconnect(receive: Receive) -> None:
    """Return once the client is gone. The body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def result_or_leave(request: Request, work: Coroutine[None, None, _Result]) -> _Result:
    """Return what the work returns, or cancel it when the client leaves first.

    A server does not cancel a handler whose client is gone; without this the engine would work for nobody: on a whole
    answer, or on the constraint that a stream waits for.

    Args:
        request: whose body has been read.
        work: its `finally` aborts what it started.

    Raises:
        ClientDisconnect: the client has left.
    """
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(wait_for_disconnect(request.receive))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientDisconnect
    finally:
        for task in (working, watching):
            task.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)
