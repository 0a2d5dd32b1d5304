"""The ASGI application: routes, error mapping, API keys, log. Any ASGI server can run it; `serve` uses uvicorn."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from slipstream.base.errors import SlipstreamError
from slipstream.frontend.async_llm import AsyncLLM
from slipstream.server.auth import ApiKeyCheck
from slipstream.server.body import MAX_BODY_BYTES
from slipstream.server.edge.request_log import RequestLog
from slipstream.server.errors import on_client_gone, on_http_error, on_project_error
from slipstream.server.routes.chat import chat_router
from slipstream.server.routes.completions import completions_router
from slipstream.server.routes.context import ServerContext
from slipstream.server.routes.messages import messages_router
from slipstream.server.routes.models import models_router
from slipstream.server.routes.openapi import openapi_router
from slipstream.server.routes.operations import operations_router
from slipstream.server.routes.page import page_router
from slipstream.server.routes.response_api import response_api_router
from slipstream.server.routes.tokens import tokens_router


def create_app(llm: AsyncLLM, *, api_keys: Sequence[str] = (), max_body_bytes: int = MAX_BODY_BYTES) -> FastAPI:
    """Return the application.

    Args:
        llm: serves the requests; the caller closes it.
        api_keys: one of them is asked of every route but /health, /metrics and the page; without any, none is.
        max_body_bytes: longest request body.
    """
    # The generated pages load scripts from elsewhere, and the schema comes from our own tables.
    app = FastAPI(title="Slipstream", openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    context = ServerContext(llm, max_body_bytes)
    for router in (chat_router, completions_router, models_router, tokens_router, operations_router, page_router):
        app.include_router(router(context))
    for router in (messages_router, response_api_router):
        app.include_router(router(context))
    app.include_router(openapi_router(needs_api_key=bool(api_keys)))
    app.add_exception_handler(SlipstreamError, on_project_error)
    app.add_exception_handler(HTTPException, on_http_error)
    app.add_exception_handler(ClientDisconnect, on_client_gone)
    if api_keys:
        app.add_middleware(ApiKeyCheck, api_keys=api_keys)
    # The last one added is the outermost.
    app.add_middleware(RequestLog)
    return app
