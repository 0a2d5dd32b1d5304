"""GET /health, /metrics and /version: for those who run the server."""

from __future__ import annotations

import importlib.metadata

from fastapi import APIRouter, Response

from slipstream.metrics.instruments import CONTENT_TYPE
from slipstream.server.protocol.responses import UNSET, Health, Version
from slipstream.server.routes.context import ServerContext, json_response

_UNKNOWN_VERSION = "unknown"
"""What a source tree that is not installed reports."""


def operations_router(context: ServerContext) -> APIRouter:
    """Return the routes."""
    router = APIRouter()

    @router.get("/health")
    async def health() -> Response:
        status = context.llm.status
        progress = status.progress if status.state == "loading" else None
        body = Health(
            status="ok" if status.state == "ready" else status.state,
            reason=status.reason or UNSET,
            stage=UNSET if progress is None else progress.stage,
            done=UNSET if progress is None else progress.done,
            total=UNSET if progress is None else progress.total,
        )
        return json_response(body, 200 if status.state == "ready" else 503)

    @router.get("/metrics")
    async def metrics() -> Response:
        # Never negotiated: see metrics.instruments.
        return Response(context.llm.render_metrics(), headers={"Content-Type": CONTENT_TYPE})

    @router.get("/version")
    async def version() -> Response:
        return json_response(Version(version=_version()))

    return router


def _version() -> str:
    try:
        return importlib.metadata.version("slipstream")
    except importlib.metadata.PackageNotFoundError:
        return _UNKNOWN_VERSION
