"""The application as a whole: every answer in one shape, and no request that makes the server fail."""

from __future__ import annotations

import asyncio
import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.server.protocol.chat_requests import ChatRequest
from slipstream.server.protocol.endpoints import ENDPOINTS
from slipstream.server.protocol.requests import CompletionRequest
from support.http_world import USER, error_of, run, world
from support.profiles import relaxed

JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/", 405),
        ("GET", "/v1/nothing", 404),
        ("POST", "/v1/chat/completions/", 404),
        ("GET", "/docs", 404),
        ("GET", "/v1/chat/completions", 405),
        ("DELETE", "/v1/models", 405),
        ("POST", "/health", 405),
    ],
)
def test_unknown_routes_and_methods(method, path, status):
    async def body():
        async with world() as w:
            reply = await w.client.request(method, path)
            error = error_of(reply, status)
            assert path in error["message"]
            if status == 405:
                assert reply.headers["allow"] in error["message"]

    run(body)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"5", b"null", b'"x"', b"{'a': 1}", b'{"a": NaN}', b'{"a": 1e999}', b"\xff\xfe{}",
     b'{"messages": "\xed\xa0\x80"}', b'{"messages": "\\ud800"}', b"[" * 100_000, b'{"a":' * 5_000, b"{} {}",
     b"\xef\xbb\xbf{}"],
)  # fmt: skip
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize"])
def test_broken_bodies_are_a_400(content, path):
    async def body():
        async with world() as w:
            error_of(await w.client.post(path, content=content, headers=JSON), 400)

    run(body)


def test_every_listed_endpoint_exists():
    async def body():
        async with world() as w:
            for endpoint in ENDPOINTS:
                path = endpoint.path.replace("{model}", "tiny")
                reply = await w.client.request(endpoint.method, path, content=b"{}" if endpoint.accepts else None)
                assert reply.status_code in ((400,) if endpoint.accepts else (200,)), path

    run(body)


json_values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(10**20), 10**20),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(st.characters(codec="utf-8"), max_size=6),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=5), inner, max_size=3),
    ),
    max_leaves=6,
)
plausible = st.one_of(
    json_values,
    st.sampled_from([0, 1, -1, 2, 0.0, 1.0, "", "a", True, False, None, [], {}, USER, ["a"], [1, 2], {"type": "text"}]),
)


def some_fields(names):
    return st.dictionaries(st.sampled_from(sorted(names)), plausible, max_size=6)


def names_of(path: str) -> set[str]:
    endpoint = next(e for e in ENDPOINTS if e.path == path)
    listed = {field.name for field in (*endpoint.ignored, *endpoint.refused)}
    return listed | set(endpoint.accepts.model_fields) | {"surprise"}


CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


@settings(relaxed, max_examples=150)
@given(st.data())
def test_no_request_makes_the_server_fail(data):
    """Any fields with any values: an answer, or an error that is the client's. Never a 500, never a hang."""
    path = data.draw(st.sampled_from([CHAT, COMPLETIONS, "/tokenize", "/detokenize"]))
    fields = data.draw(some_fields(names_of(path)))
    if data.draw(st.booleans()):
        fields = {CHAT: {"messages": USER}, COMPLETIONS: {"prompt": "ABC"}}.get(path, {}) | fields

    async def body():
        async with world() as w:
            reply = await w.client.post(path, content=json.dumps(fields), headers=JSON)
            assert reply.status_code in (200, 400, 404), (fields, reply.text)
            if reply.status_code != 200:
                error_of(reply, reply.status_code)
            elif not reply.headers["content-type"].startswith("text/event-stream"):
                msgspec.json.decode(reply.content)
            else:
                assert reply.text.endswith("data: [DONE]\n\n")
            await asyncio.sleep(0)
            assert w.llm.status.num_streams == 0
            assert w.llm.status.state == "ready"

    run(body)


@settings(relaxed, max_examples=150)
@given(st.binary(max_size=80), st.sampled_from([CHAT, COMPLETIONS, "/tokenize", "/detokenize"]))
def test_no_bytes_make_the_server_fail(content, path):
    async def body():
        async with world() as w:
            reply = await w.client.post(path, content=content, headers=JSON)
            assert reply.status_code == 400, (content, reply.text)

    run(body)


def test_accepted_fields_are_explained():
    for model in (ChatRequest, CompletionRequest):
        for name, field in model.model_fields.items():
            assert field.description, name


def test_a_fault_of_the_server_is_a_500_in_the_same_shape(monkeypatch):
    async def body():
        async with world() as w:
            w.client._transport.raise_app_exceptions = False

            async def broken(*args, **kwargs):
                raise ZeroDivisionError

            monkeypatch.setattr(w.llm, "open", broken)
            error = error_of(await w.complete(), 500)
            assert (error["type"], error["param"]) == ("internal_error", None)
            assert "ZeroDivisionError" in error["message"]

    run(body)
