"""The list of endpoints is what the application serves."""

from __future__ import annotations

from slipstream.server.protocol.endpoints import CHAT, COMPLETIONS, ENDPOINTS
from slipstream.server.routes.page import PAGE_FILES
from support.http_world import run, world


def test_every_served_route_is_listed():
    async def body():
        async with world() as w:
            served = set()
            for route in w.client._transport.app.routes:
                inner = getattr(route, "original_router", None)
                for one in inner.routes if inner is not None else [route]:
                    served |= {(method, one.path) for method in getattr(one, "methods", ())}
            assert served, "no route was found: the test would prove nothing"
            # The files of the page are no interface.
            served = {(method, path) for method, path in served if path not in PAGE_FILES}
            assert {(e.method, e.path.replace("{model}", "{model:path}")) for e in ENDPOINTS} == served

    run(body)


def test_paths_are_unique_and_generating_endpoints_refuse_and_ignore():
    assert len({endpoint.path for endpoint in ENDPOINTS}) == len(ENDPOINTS)
    for endpoint in (CHAT, COMPLETIONS):
        assert endpoint.ignored
        assert endpoint.refused
        assert endpoint.purpose
