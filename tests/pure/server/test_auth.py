"""The API key is asked of everything but probes."""

from __future__ import annotations

import pytest

from slipstream.base.errors import ConfigError
from slipstream.server import auth
from slipstream.server.auth import ApiKeyCheck
from support.http_world import error_of, run, world

KEY = "geheim-é"
PATHS = ["/v1/models", "/version", "/nothing", "/v1/chat/completions"]


@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer ", "Bearer wrong", "Bearer geheim", KEY, f"Basic {KEY}", f"Bearer {KEY}x"],
)
@pytest.mark.parametrize("path", PATHS)
def test_without_the_key_it_is_a_401(header, path):
    async def body():
        async with world(api_keys=[KEY]) as w:
            headers = {} if header is None else {"authorization": header.encode()}
            reply = await w.client.get(path, headers=headers)
            assert error_of(reply, 401)["type"] == "authentication_error"
            assert reply.headers["www-authenticate"] == "Bearer"

    run(body)


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_with_the_key_it_passes(scheme):
    async def body():
        async with world(api_keys=[KEY]) as w:
            headers = {"authorization": f"{scheme} {KEY}".encode()}
            assert (await w.client.get("/v1/models", headers=headers)).status_code == 200
            error_of(await w.client.get("/nothing", headers=headers), 404)

    run(body)


@pytest.mark.parametrize("key", [" k", "k\n", "\tk "])
def test_white_space_around_the_configured_key_does_not_lock_out(key):
    async def body():
        async with world(api_keys=[key]) as w:
            for value in ("Bearer k", "Bearer  k "):
                assert (await w.client.get("/v1/models", headers={"authorization": value})).status_code == 200

    run(body)


@pytest.mark.parametrize("key", ["", "  "])
def test_an_empty_key_lets_nobody_in_unasked(key):
    with pytest.raises(ConfigError, match="API key is empty"):
        ApiKeyCheck(app=None, api_keys=["good", key])


@pytest.mark.parametrize("path", ["/health", "/metrics", "/", "/static/page.js"])
def test_probes_need_no_key(path):
    async def body():
        async with world(api_keys=[KEY]) as w:
            assert (await w.client.get(path)).status_code == 200

    run(body)


KEYS = ["first-key", "second", "third-é"]


@pytest.mark.parametrize("key", KEYS)
def test_any_of_several_keys_will_do_in_either_header(key):
    async def body():
        async with world(api_keys=KEYS) as w:
            for headers in ({"authorization": f"Bearer {key}".encode()}, {"x-api-key": key.encode()}):
                assert (await w.client.get("/v1/models", headers=headers)).status_code == 200
            both = {"authorization": b"Bearer wrong", "x-api-key": key.encode()}
            assert (await w.client.get("/v1/models", headers=both)).status_code == 200

    run(body)


@pytest.mark.parametrize("key", ["", "first", "first-keyy", "first-key,second", "Bearer second", "third-e"])
def test_none_of_several_keys_is_none(key):
    async def body():
        async with world(api_keys=KEYS) as w:
            reply = await w.client.get("/v1/models", headers={"x-api-key": key.encode()})
            error = error_of(reply, 401)
            assert not any(known in error["message"] for known in KEYS)

    run(body)


def test_a_key_that_is_no_text_is_compared_by_bytes():
    async def body():
        async with world(api_keys=["\udcff\udcfe"]) as w:
            assert (await w.client.get("/v1/models", headers={"x-api-key": b"\xff\xfe"})).status_code == 200
            error_of(await w.client.get("/v1/models", headers={"x-api-key": b"\xff"}), 401)

    run(body)


def test_every_key_is_compared_whichever_fits(monkeypatch):
    compared = []

    def compare(given, known):
        compared.append(known)
        return given == known

    monkeypatch.setattr(auth.hmac, "compare_digest", compare)

    async def body():
        async with world(api_keys=KEYS) as w:
            for key in ("first-key", "wrong"):
                compared.clear()
                await w.client.get("/v1/models", headers={"x-api-key": key})
                assert len(compared) == 2 * len(KEYS)
                assert {len(digest) for digest in compared} == {32}

    run(body)


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
def test_clients_of_the_messages_api_get_an_error_in_its_shape(path):
    async def body():
        async with world(api_keys=KEYS) as w:
            reply = await w.client.post(path, json={})
            assert reply.status_code == 401
            told = reply.json()
            assert (told["type"], told["error"]["type"]) == ("error", "authentication_error")
            reply = await w.client.post(path, json={}, headers={"x-api-key": "second"})
            assert (reply.status_code, reply.json()["error"]["type"]) == (400, "invalid_request_error")

    run(body)


def test_without_a_key_nothing_is_asked():
    async def body():
        async with world() as w:
            assert (await w.client.get("/v1/models", headers={"authorization": "Bearer x"})).status_code == 200

    run(body)
