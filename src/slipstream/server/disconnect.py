"""Notice a client that leaves while a whole answer is in the making. Streams: see sse."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

from fastapi import Request, Response
from starlette.types import Receive

from slipstream.server.errors import CLIENT_GONE_STATUS


async def wait_for_disconnect(receive: Receive) -> None:
    """Return once the client is gone. The body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def answer_or_leave(request: Request, work: Coroutine[None, None, Response]) -> Response:
    """Return the answer, or cancel the work when the client leaves first.

    A server does not cancel a handler whose client is gone; without this the engine would work for nobody.

    Args:
        request: whose body has been read.
        work: makes the answer; its `finally` aborts what it started.
    """
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(wait_for_disconnect(request.receive))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else Response(status_code=CLIENT_GONE_STATUS)
    finally:
        for task in (working, watching):
            task.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)
