"""GET / and /static/…: a page to chat on. It holds no secret and asks for no key; what it calls does.

The files lie in `server/page` and are read once. Nothing is loaded from elsewhere, and the policy sent with them
keeps a browser from doing so.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from fastapi import APIRouter, Request, Response

from slipstream.server.routes.context import ServerContext

PAGE_FOLDER = Path(__file__).resolve().parent.parent / "page"
_SCRIPT = "text/javascript; charset=utf-8"
PAGE_FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/static/page.css": ("page.css", "text/css; charset=utf-8"),
    "/static/icon.svg": ("icon.svg", "image/svg+xml"),
    **{
        f"/static/{name}.js": (f"{name}.js", _SCRIPT) for name in ("page", "api", "answer", "chart", "meter", "samples")
    },
}
"""Path -> file and content type."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # Asked again each time, and answered 304 as long as nothing changed: a new release shows at once.
    "Cache-Control": "no-cache",
}


class _PageFile:
    """One file with its headers."""

    def __init__(self, name: str, content_type: str) -> None:
        self._body = (PAGE_FOLDER / name).read_bytes()
        self._tag = f'"{hashlib.sha256(self._body).hexdigest()[:32]}"'
        self._headers = {**_HEADERS, "ETag": self._tag}
        self._content_type = content_type

    async def answer(self, request: Request) -> Response:
        known = request.headers.get("if-none-match", "")
        if self._tag in (tag.strip().removeprefix("W/") for tag in known.split(",")):
            return Response(status_code=304, headers=self._headers)
        return Response(self._body, headers={**self._headers, "Content-Type": self._content_type})


def page_router(context: ServerContext) -> APIRouter:
    """Return the routes."""
    del context
    router = APIRouter()
    for path, (name, content_type) in PAGE_FILES.items():
        router.add_api_route(path, _PageFile(name, content_type).answer, methods=["GET", "HEAD"])
    return router
