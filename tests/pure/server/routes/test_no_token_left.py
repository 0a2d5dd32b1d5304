"""A request that leaves no token to draw is its caller's fault, on every route, whole and in a stream."""

from __future__ import annotations

import json

import pytest

from slipstream.wire.messages import RequestOutput
from slipstream.wire.step import NO_TOKEN_CODE
from support.answer_world import named_events, tool_text
from support.http_world import World, events, run, world

ROUTES = {
    "/v1/completions": {"prompt": "hi"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
    "/v1/messages": {"model": "tiny", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]},
    "/v1/responses": {"input": "hi"},
}


def contradict(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every request end as one whose constraint and other wishes have no token in common."""

    def advance(request_id, request, emitted):
        del request, emitted
        del w.engine.running[request_id]
        return RequestOutput(
            request_id=request_id,
            finish_reason="error",
            error="no token may come next: loosen the constraint",
            error_kind="RequestError",
            error_code=NO_TOKEN_CODE,
        )

    monkeypatch.setattr(w.engine, "_advance", advance)


@pytest.mark.parametrize("path", ROUTES)
def test_a_whole_answer_is_a_400(monkeypatch, path):
    async def body():
        async with world(text=tool_text()) as w:
            contradict(w, monkeypatch)
            reply = await w.post(path, ROUTES[path])
            assert reply.status_code == 400
            error = reply.json()["error"]
            assert error["type"] == "invalid_request_error"
            assert "no token may come next" in error["message"]
            assert path == "/v1/messages" or error["code"] == "no_token_left"

    run(body)


@pytest.mark.parametrize("path", ROUTES)
def test_a_stream_ends_with_an_event_that_says_so(monkeypatch, path):
    async def body():
        async with world(text=tool_text()) as w:
            contradict(w, monkeypatch)
            reply = await w.post(path, ROUTES[path] | {"stream": True})
            assert reply.status_code == 200
            if path == "/v1/responses":
                error = named_events(reply)[-1]["response"]["error"]
                assert error["code"] == "no_token_left"
            elif path == "/v1/messages":
                error = named_events(reply)[-1]["error"]
                assert error["type"] == "invalid_request_error"
            else:
                error = events(reply)[-1]["error"]
                assert (error["type"], error["code"]) == ("invalid_request_error", "no_token_left")
            assert "no token may come next" in json.dumps(error)

    run(body)
