"""GET /v1/models."""

from __future__ import annotations

import openai

from support.http_world import error_of, live_world, run, world


def test_the_served_model_is_listed_and_found():
    async def body():
        async with world() as w:
            listed = (await w.client.get("/v1/models")).json()
            (model,) = listed["data"]
            assert listed["object"] == "list"
            assert (model["id"], model["object"], model["max_model_len"]) == ("tiny", "model", 512)
            engine = {"device": "cpu", "dtype": "float32", "drafter": "ngram", "draft_len": 3}
            assert model["engine"] == engine | {"verification": "coupled"}
            assert (await w.client.get("/v1/models/tiny")).json() == model
            assert error_of(await w.client.get("/v1/models/org/other"), 404)["code"] == "model_not_found"

    run(body)


def test_while_loading_the_length_and_the_engine_are_unknown():
    async def body():
        async with world(ready=False) as w:
            (model,) = (await w.client.get("/v1/models")).json()["data"]
            assert (model["max_model_len"], model["engine"]) == (None, None)

    run(body)


def test_the_openai_package_reads_it():
    async def body():
        async with live_world() as w, openai.AsyncOpenAI(base_url=f"{w.url}/v1", api_key="x") as client:
            assert [model.id async for model in await client.models.list()] == ["tiny"]
            assert (await client.models.retrieve("tiny")).owned_by == "slipstream"

    run(body)
