"""The ASGI application: routes, error mapping, API key. Any ASGI server can run it; `serve` uses uvicorn."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from slipstream.base.errors import SlipstreamError
from slipstream.frontend.async_llm import AsyncLLM
from slipstream.server.auth import ApiKeyCheck
from slipstream.server.body import MAX_BODY_BYTES
from slipstream.server.errors import on_client_gone, on_http_error, on_other_error, on_project_error
from slipstream.server.routes.chat import chat_router
from slipstream.server.routes.completions import completions_router
from slipstream.server.routes.context import ServerContext
from slipstream.server.routes.models import models_router
from slipstream.server.routes.operations import operations_router
from slipstream.server.routes.tokens import tokens_router


def create_app(llm: AsyncLLM, *, api_key: str | None = None, max_body_bytes: int = MAX_BODY_BYTES) -> FastAPI:
    """Return the application.

    Args:
        llm: serves the requests; the caller closes it.
        api_key: asked of every route but /health and /metrics; None asks for none.
        max_body_bytes: longest request body.
    """
    # The generated pages load scripts from elsewhere, and the schema comes from our own tables.
    app = FastAPI(title="Slipstream", openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    context = ServerContext(llm, max_body_bytes)
    for router in (chat_router, completions_router, models_router, tokens_router, operations_router):
        app.include_router(router(context))
    app.add_exception_handler(SlipstreamError, on_project_error)
    app.add_exception_handler(HTTPException, on_http_error)
    app.add_exception_handler(ClientDisconnect, on_client_gone)
    app.add_exception_handler(Exception, on_other_error)
    if api_key is not None:
        app.add_middleware(ApiKeyCheck, api_key=api_key)
    return app
