"""GET /openapi.json: the interface as a document."""

from __future__ import annotations

import functools

import msgspec
from fastapi import APIRouter, Response

from slipstream.server.openapi.document import build_document
from slipstream.server.protocol.endpoints import ENDPOINTS, OPENAPI


def openapi_router(*, needs_api_key: bool) -> APIRouter:
    """Return the route.

    Args:
        needs_api_key: whether the server asks for a key.
    """
    router = APIRouter()

    @functools.cache
    def document() -> bytes:
        return msgspec.json.encode(build_document(ENDPOINTS, needs_api_key=needs_api_key))

    @router.get(OPENAPI.path)
    async def get_document() -> Response:
        return Response(document(), media_type="application/json")

    return router
