"""A client of the HTTP interface on the standard library alone, as a second opinion beside the client packages."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class PlainClient:
    """Speaks to one server; a connection per request.

    Args:
        base_url: `http://HOST:PORT`.
    """

    def __init__(self, base_url: str) -> None:
        self._address = base_url.removeprefix("http://")

    def chat(self, **fields: Any) -> dict[str, Any]:
        """Return the whole answer to a conversation."""
        with self._post("/v1/chat/completions", fields) as reply:
            answer = json.loads(reply.read())
            assert reply.status == 200, answer
            return answer

    def stream(self, **fields: Any) -> list[dict[str, Any]]:
        """Return the chunks of a streamed answer; the framing of its bytes is checked."""
        with self._post("/v1/chat/completions", fields | {"stream": True}) as reply:
            assert reply.status == 200
            assert reply.headers["content-type"].startswith("text/event-stream")
            *events, rest = reply.read().split(b"\n\n")
        assert rest == b"", "the last event ends with an empty line"
        assert all(event.startswith(b"data: ") and b"\n" not in event for event in events)
        payloads = [event.removeprefix(b"data: ") for event in events]
        assert payloads.pop() == b"[DONE]"
        return [json.loads(payload) for payload in payloads]

    def read_and_leave(self, num_bytes: int, **fields: Any) -> bytes:
        """Read the beginning of a stream, then close the connection."""
        with self._post("/v1/chat/completions", fields | {"stream": True}) as reply:
            return reply.read(num_bytes)

    @contextmanager
    def _post(self, path: str, fields: dict[str, Any]) -> Iterator[http.client.HTTPResponse]:
        connection = http.client.HTTPConnection(self._address, timeout=60)
        try:
            connection.request("POST", path, json.dumps(fields), {"Content-Type": "application/json"})
            reply = connection.getresponse()
            try:
                yield reply
            finally:
                reply.close()
        finally:
            connection.close()


def text_of(chunks: list[dict[str, Any]]) -> str:
    """Return the text of a streamed answer."""
    return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
