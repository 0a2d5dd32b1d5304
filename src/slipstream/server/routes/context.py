"""What every route has at hand."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import msgspec
from fastapi import Request, Response

from slipstream.base.errors import OverloadedError
from slipstream.frontend.async_llm import AsyncLLM
from slipstream.server.body import BodyBudget, read_object
from slipstream.server.errors import RefusedRequest


@dataclass(frozen=True)
class ServerContext:
    """The engine's front end and the limits of the server.

    Args:
        llm: serves the requests.
        max_body_bytes: longest body.
        bodies: what all bodies that are being read may hold.
        started: when the server started, in Unix seconds.
    """

    llm: AsyncLLM
    max_body_bytes: int
    bodies: BodyBudget = field(default_factory=BodyBudget)
    started: int = field(default_factory=lambda: int(time.time()))

    async def read(self, request: Request) -> dict[str, Any]:
        """Return the JSON object of a request's body.

        Raises:
            OverloadedError: the engine has died, and the server is about to end; or too many bodies are being read.
            RequestError: it is not a body that is served.
        """
        status = self.llm.status
        if status.state == "dead":
            raise OverloadedError(f"the engine has died and this server is about to end: {status.reason}")
        return await read_object(request, self.max_body_bytes, self.bodies, self.llm.work_on_text)

    def check_model(self, name: str | None) -> None:
        """Refuse a model that is not served.

        Raises:
            RefusedRequest: 404.
        """
        if name is not None and name != self.llm.model_name:
            raise RefusedRequest(
                404,
                f"model={name[:80]!r} is not served here: ask for {self.llm.model_name!r}",
                param="model",
                code="model_not_found",
            )


def json_response(message: msgspec.Struct, status: int = 200) -> Response:
    """Return a message as JSON."""
    return Response(msgspec.json.encode(message), status, media_type="application/json")
