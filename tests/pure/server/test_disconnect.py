"""A client that leaves cancels the work; one that stays gets the answer."""

from __future__ import annotations

import asyncio
import types

import pytest
from fastapi import Response
from starlette.requests import ClientDisconnect

from slipstream.server.disconnect import result_or_leave, wait_for_disconnect
from support.http_world import run


def client(*messages):
    """Return a request whose client says these things and then stays."""
    queue = list(messages)

    async def receive():
        if queue:
            return queue.pop(0)
        return await asyncio.Event().wait()

    return types.SimpleNamespace(receive=receive)


GONE = {"type": "http.disconnect"}


def test_the_answer_of_a_client_that_stays():
    async def work():
        await asyncio.sleep(0.01)
        return Response("done")

    async def body():
        assert (await result_or_leave(client(), work())).body == b"done"

    run(body)


def test_the_work_of_a_client_that_leaves_is_cancelled_before_the_reply():
    async def body():
        ended = []

        async def work():
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                ended.append(True)

        with pytest.raises(ClientDisconnect):
            await result_or_leave(client({"type": "http.request"}, GONE), work())
        assert ended == [True]

    run(body)


def test_an_error_of_the_work_is_passed_on():
    async def work():
        raise ValueError("wrong")

    async def body():
        with pytest.raises(ValueError, match="wrong"):
            await result_or_leave(client(), work())

    run(body)


def test_cancelling_the_handler_cancels_the_work():
    async def body():
        ended = []

        async def work():
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(True)

        task = asyncio.create_task(result_or_leave(client(), work()))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == [True]

    run(body)


def test_only_a_disconnect_ends_the_wait():
    async def body():
        await wait_for_disconnect(client({"type": "http.request"}, {"type": "http.request"}, GONE).receive)

    run(body)
