"""The HTTP server over a scripted engine, in one event loop: as an ASGI application, or on a real socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import uvicorn

from slipstream.frontend.async_llm import AsyncLLM
from slipstream.frontend.processor import TextParts
from slipstream.server.app import create_app
from slipstream.server.serve import bind, http_config
from support.fake_engine import FakeClient, Script, ScriptedEngine, echo, fake_facts
from support.tiny_text import tiny_folder

TEXT = TextParts.load(tiny_folder())
USER = [{"role": "user", "content": "hi"}]


class World:
    """A server with everything behind it at hand."""

    def __init__(self, fake: FakeClient, llm: AsyncLLM, client: httpx.AsyncClient, url: str) -> None:
        self.fake = fake
        self.llm = llm
        self.client = client
        self.url = url

    @property
    def engine(self) -> ScriptedEngine:
        return self.fake.engine

    async def post(self, path: str, body: Any, **options: Any) -> httpx.Response:
        return await self.client.post(path, json=body, **options)

    async def chat(self, **fields: Any) -> httpx.Response:
        return await self.post("/v1/chat/completions", {"model": "tiny", "messages": USER} | fields)

    async def complete(self, **fields: Any) -> httpx.Response:
        return await self.post("/v1/completions", {"model": "tiny", "prompt": "ABC"} | fields)


@asynccontextmanager
async def _front(
    script: Script, step_s: float, max_queue: int, ready: bool, facts: dict[str, Any], text: TextParts = TEXT
) -> AsyncIterator[tuple[FakeClient, AsyncLLM]]:
    fake = FakeClient(ScriptedEngine(fake_facts(**facts), script), step_s=step_s, is_held=not ready)
    llm = AsyncLLM(fake, lambda: text, model_name="tiny", max_queue=max_queue)
    try:
        if ready:
            await llm.wait_ready()
        yield fake, llm
    finally:
        await llm.close()


@asynccontextmanager
async def world(
    *,
    script: Script = echo,
    step_s: float = 0.0,
    max_queue: int = 64,
    ready: bool = True,
    facts: dict[str, Any] | None = None,
    text: TextParts = TEXT,
    **app: Any,
) -> AsyncIterator[World]:
    """Serve in process, without a socket; streams arrive whole."""
    async with _front(script, step_s, max_queue, ready, facts or {}, text) as (fake, llm):
        transport = httpx.ASGITransport(create_app(llm, **app))
        async with httpx.AsyncClient(transport=transport, base_url="http://tiny", timeout=30) as client:
            yield World(fake, llm, client, "http://tiny")


@asynccontextmanager
async def live_world(
    *, script: Script = echo, step_s: float = 0.0, max_queue: int = 64, text: TextParts = TEXT, **app: Any
) -> AsyncIterator[World]:
    """Serve on a real socket of this machine."""
    async with _front(script, step_s, max_queue, True, {}, text) as (fake, llm):
        listener = bind("127.0.0.1", 0)
        server = uvicorn.Server(http_config(create_app(llm, **app)))
        serving = asyncio.create_task(server._serve([listener]))
        while not server.started:
            await asyncio.sleep(0.005)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        try:
            async with httpx.AsyncClient(base_url=url, timeout=30) as client:
                yield World(fake, llm, client, url)
        finally:
            server.should_exit = True
            await serving


def run(body: Callable[[], Awaitable[Any]], timeout_s: float = 60) -> Any:
    """Run a test body in a fresh event loop."""

    async def limited() -> Any:
        return await asyncio.wait_for(body(), timeout_s)

    return asyncio.run(limited())


def events(response: httpx.Response) -> list[Any]:
    """Return the events of a stream; [DONE] as the text."""
    assert response.headers["content-type"].startswith("text/event-stream")
    found = []
    for block in response.text.split("\n\n"):
        if block:
            assert block.startswith("data: ")
            payload = block.removeprefix("data: ")
            found.append(payload if payload == "[DONE]" else json.loads(payload))
    return found


def error_of(response: httpx.Response, status: int) -> dict[str, Any]:
    """Return the error of a response; its shape is checked."""
    assert response.status_code == status, response.text
    body = response.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert len(body["error"]["message"]) > 10
    return body["error"]
