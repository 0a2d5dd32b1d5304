"""GET /health, /metrics, /version."""

from __future__ import annotations

import asyncio

from slipstream.wire.messages import Failed, Progress
from support.http_world import run, world


def test_health_follows_the_engine():
    async def body():
        async with world(ready=False) as w:
            reply = await w.client.get("/health")
            assert (reply.status_code, reply.json()) == (503, {"status": "loading"})
            w.fake._messages.append(Progress(stage="weights", done=1, total=3))
            w.fake.ready.set()
            await w.llm.wait_ready()
            reply = await w.client.get("/health")
            assert (reply.status_code, reply.json()) == (200, {"status": "ok"})
            await w.llm.drain(1)
            reply = await w.client.get("/health")
            assert (reply.status_code, reply.json()) == (503, {"status": "draining"})
            w.fake.tell(Failed(kind="EngineError", reason="the device is gone"))
            await asyncio.sleep(0.01)
            reply = await w.client.get("/health")
            assert (reply.status_code, reply.json()) == (503, {"status": "dead", "reason": "the device is gone"})

    run(body)


def test_health_tells_the_stage_of_loading():
    async def body():
        async with world(ready=False) as w:
            w.fake._messages.append(Progress(stage="weights", done=1, total=3))
            w.fake.ready.set()
            w.fake._is_ready_told = True
            while w.llm.status.progress is None:
                await asyncio.sleep(0.001)
            reply = await w.client.get("/health")
            assert reply.json() == {"status": "loading", "stage": "weights", "done": 1, "total": 3}

    run(body)


def test_metrics_are_plain_text_whatever_the_scraper_asks_for():
    async def body():
        async with world() as w:
            await w.complete()
            asked = {"accept": "application/openmetrics-text; version=1.0.0"}
            reply = await w.client.get("/metrics", headers=asked)
            assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
            assert 'vllm:generation_tokens_total{engine="0",model_name="tiny"} 4.0' in reply.text
            assert not reply.text.rstrip().endswith("# EOF")

    run(body)


def test_metrics_before_the_engine_is_ready_are_empty():
    async def body():
        async with world(ready=False) as w:
            reply = await w.client.get("/metrics")
            assert (reply.status_code, reply.text) == (200, "")

    run(body)


def test_version_is_a_word():
    async def body():
        async with world() as w:
            assert (await w.client.get("/version")).json()["version"]

    run(body)
