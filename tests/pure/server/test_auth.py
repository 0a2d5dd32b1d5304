"""The API key is asked of everything but probes."""

from __future__ import annotations

import pytest

from slipstream.base.errors import ConfigError
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
        async with world(api_key=KEY) as w:
            headers = {} if header is None else {"authorization": header.encode()}
            reply = await w.client.get(path, headers=headers)
            assert error_of(reply, 401)["type"] == "authentication_error"
            assert reply.headers["www-authenticate"] == "Bearer"

    run(body)


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_with_the_key_it_passes(scheme):
    async def body():
        async with world(api_key=KEY) as w:
            headers = {"authorization": f"{scheme} {KEY}".encode()}
            assert (await w.client.get("/v1/models", headers=headers)).status_code == 200
            error_of(await w.client.get("/nothing", headers=headers), 404)

    run(body)


@pytest.mark.parametrize("key", [" k", "k\n", "\tk "])
def test_white_space_around_the_configured_key_does_not_lock_out(key):
    async def body():
        async with world(api_key=key) as w:
            for value in ("Bearer k", "Bearer  k "):
                assert (await w.client.get("/v1/models", headers={"authorization": value})).status_code == 200

    run(body)


@pytest.mark.parametrize("key", ["", "  "])
def test_an_empty_key_lets_nobody_in_unasked(key):
    with pytest.raises(ConfigError, match="API key is empty"):
        ApiKeyCheck(app=None, api_key=key)


@pytest.mark.parametrize("path", ["/health", "/metrics"])
def test_probes_need_no_key(path):
    async def body():
        async with world(api_key=KEY) as w:
            assert (await w.client.get(path)).status_code == 200

    run(body)


def test_without_a_key_nothing_is_asked():
    async def body():
        async with world() as w:
            assert (await w.client.get("/v1/models", headers={"authorization": "Bearer x"})).status_code == 200

    run(body)
