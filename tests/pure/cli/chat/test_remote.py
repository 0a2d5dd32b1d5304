"""A server elsewhere: its events become pieces and an end, its errors become sentences."""

from __future__ import annotations

import asyncio
import contextlib
import json

import httpx
import pytest

from slipstream.base.errors import ConfigError, EngineError, RequestError
from slipstream.cli.chat.remote import RemoteSource
from slipstream.cli.chat.source import Ended, Piece, Settings

MODELS = {"data": [{"id": "m3", "engine": {"device": "cpu", "drafter": "eagle3", "draft_len": 3}}]}
USAGE = {
    "prompt_tokens": 7,
    "completion_tokens": 5,
    "speculation": {"num_verify_steps": 2, "num_draft_tokens": 6, "num_accepted": 2, "num_emitted": 4},
}
HI = [{"role": "user", "content": "hi"}]


def token(text, is_draft, part="content"):
    return {"text": text, "is_draft": is_draft, "part": part}


def chunk(delta, finish_reason=None, **more):
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason, **more}]}


class Server:
    """Answers models, and chats with the given events."""

    def __init__(self, *events, status=200, models=MODELS, is_whole=True):
        self.events = events
        self.status = status
        self.models = models
        self.is_whole = is_whole
        self.bodies = []
        self.headers = None

    def handle(self, request):
        self.headers = request.headers
        if request.url.path == "/v1/models":
            return httpx.Response(self.status, json=self.models)
        self.bodies.append(json.loads(request.content))
        text = "".join(f"data: {json.dumps(event)}\n\n" for event in self.events)
        return httpx.Response(self.status, text=text + ("data: [DONE]\n\n" if self.is_whole else ""))

    def talk(self, settings=None, **options):
        """Return what the source says of itself and the events of one answer."""

        async def body():
            source = RemoteSource("http://there:1/v1", transport=httpx.MockTransport(self.handle), **options)
            await source.find_model()
            async with contextlib.aclosing(source.answer(HI, settings or Settings())) as events:
                found = [event async for event in events]
            await source.close()
            return source.describe(), found

        return asyncio.run(body())


def test_origins_become_pieces_and_usage_the_end():
    server = Server(
        chunk({"role": "assistant"}),
        chunk({"reasoning_content": "hm"}, token_origins=[token("hm", False, "reasoning")]),
        chunk({"content": "a b"}, token_origins=[token("a", True), token(" b", False)]),
        chunk({}, "stop"),
        {"choices": [], "usage": USAGE},
    )
    described, events = server.talk(Settings(temperature=0.5, seed=3, max_tokens=9, thinking="on"), api_key="k")
    assert described == "m3 at http://there:1, device cpu, drafter eagle3, draft_len 3"
    assert events == [
        Piece("hm", False, "reasoning"),
        Piece("a", True),
        Piece(" b", False),
        Ended(
            finish_reason="stop",
            num_prompt_tokens=7,
            num_output_tokens=5,
            num_verify_steps=2,
            num_draft_tokens=6,
            num_accepted=2,
            num_emitted=4,
        ),
    ]
    assert server.headers["authorization"] == "Bearer k"
    (body,) = server.bodies
    assert body["return_token_origins"] is True
    assert (body["model"], body["temperature"], body["seed"], body["max_tokens"]) == ("m3", 0.5, 3, 9)
    assert body["chat_template_kwargs"] == {"thinking_mode": "enabled"}


def test_a_server_that_tells_no_origins_is_read_all_the_same():
    server = Server(chunk({"reasoning_content": "hm", "content": "a"}), chunk({"content": "b"}, "length"))
    events = server.talk()[1]
    assert events[:-1] == [Piece("hm", None, "reasoning"), Piece("a", None), Piece("b", None)]
    assert events[-1].finish_reason == "length"
    assert events[-1].num_output_tokens == 0
    assert "seed" not in server.bodies[0]
    assert "chat_template_kwargs" not in server.bodies[0]


def test_errors_become_sentences():
    error = {"error": {"message": "the model is tired"}}
    with pytest.raises(EngineError, match="the model is tired"):
        Server(chunk({"content": "a"}), error, is_whole=False).talk()
    with pytest.raises(EngineError, match="closed the stream before the end"):
        Server(chunk({"content": "a"}), is_whole=False).talk()
    with pytest.raises(RequestError, match=r"key is wrong \(give it with --api-key, or in SLIPSTREAM_API_KEY\)"):
        Server(status=401, models={"error": {"message": "the key is wrong"}}).talk()
    with pytest.raises(RequestError, match="answered 400: too long") as refused:
        Server(status=400, models={"error": {"message": "too long", "code": "context_length_exceeded"}}).talk()
    assert refused.value.code == "context_length_exceeded"
    with pytest.raises(EngineError, match="answered 503: loading"):
        Server(status=503, models={"error": {"message": "loading"}}).talk()
    with pytest.raises(EngineError, match="did not answer as a server of this kind"):
        Server(models={"hello": "world"}).talk()


def test_a_server_that_is_not_there_is_named():
    def refuse(request):
        raise httpx.ConnectError("refused", request=request)

    async def body():
        source = RemoteSource("http://there:1", transport=httpx.MockTransport(refuse))
        with pytest.raises(EngineError, match=r"http://there:1 cannot be reached .* is the server running"):
            await source.find_model()
        await source.close()

    asyncio.run(body())


@pytest.mark.parametrize("url", ["there:1", "ftp://there", "http://there:port"])
def test_what_is_no_url_is_refused(url):
    with pytest.raises(ConfigError, match="--url"):
        RemoteSource(url)
