"""GET /openapi.json, and that it tells of every route of the application and of no other."""

from __future__ import annotations

import re

from fastapi.routing import APIRoute

from slipstream.server.app import create_app
from slipstream.server.openapi.document import build_document
from slipstream.server.protocol.endpoints import ENDPOINTS
from slipstream.server.routes.page import PAGE_FILES
from support.http_world import error_of, run, world


def test_the_document_is_served():
    async def body():
        async with world() as w:
            reply = await w.client.get("/openapi.json")
            assert reply.status_code == 200
            assert reply.headers["content-type"] == "application/json"
            assert reply.json() == build_document(ENDPOINTS)

    run(body)


def test_every_route_is_in_the_document_and_every_operation_is_a_route():
    """The files of the page are no interface."""

    async def body():
        async with world() as w:
            app = create_app(w.llm)
            served = {
                (method, re.sub(r"{(\w+):\w+}", r"{\1}", route.path))
                for route in _routes(app.router)
                for method in route.methods
                if route.path not in PAGE_FILES
            }
            document = (await w.client.get("/openapi.json")).json()
            told = {(method.upper(), path) for path, item in document["paths"].items() for method in item}
            assert served == told

    run(body)


def _routes(router):
    """Routes of an application, those of included routers too, however deep the framework keeps them."""
    for route in router.routes:
        inner = getattr(route, "original_router", None)
        if inner is not None:
            yield from _routes(inner)
        else:
            assert isinstance(route, APIRoute), f"{route} is no route that the document could tell of"
            yield route


def test_the_document_needs_the_key_and_tells_so():
    async def body():
        async with world(api_keys=["secret"]) as w:
            error_of(await w.client.get("/openapi.json"), 401)
            reply = await w.client.get("/openapi.json", headers={"Authorization": "Bearer secret"})
            assert reply.json() == build_document(ENDPOINTS, needs_api_key=True)

    run(body)
