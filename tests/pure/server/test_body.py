"""Bodies up to the limit are read; longer, encoded or foreign ones are refused."""

from __future__ import annotations

import json

import pytest

from support.http_world import error_of, live_world, run, world

BODY = json.dumps({"model": "tiny", "prompt": "ABC"}).encode()


@pytest.mark.parametrize("kind", ["application/json", "application/json; charset=utf-8", "Application/JSON", None])
def test_json_is_read(kind):
    async def body():
        async with world() as w:
            headers = {} if kind is None else {"content-type": kind}
            assert (await w.client.post("/v1/completions", content=BODY, headers=headers)).status_code == 200

    run(body)


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", "json"])
def test_another_content_type_is_a_400(kind):
    async def body():
        async with world() as w:
            reply = await w.client.post("/v1/completions", content=BODY, headers={"content-type": kind})
            assert "application/json" in error_of(reply, 400)["message"]

    run(body)


def test_an_encoded_body_is_a_400():
    async def body():
        async with world() as w:
            headers = {"content-type": "application/json", "content-encoding": "gzip"}
            reply = await w.client.post("/v1/completions", content=BODY, headers=headers)
            assert "gzip" in error_of(reply, 400)["message"]

    run(body)


@pytest.mark.parametrize("chunked", [False, True])
def test_the_limit_is_exact(chunked):
    async def body():
        async with world(max_body_bytes=len(BODY)) as w:
            for content, status in ((BODY, 200), (BODY + b" ", 413)):

                async def pieces(whole=content):
                    for start in range(0, len(whole), 7):
                        yield whole[start : start + 7]

                sent = pieces() if chunked else content
                reply = await w.client.post(
                    "/v1/completions", content=sent, headers={"content-type": "application/json"}
                )
                assert reply.status_code == status
                if status == 413:
                    assert error_of(reply, 413)["code"] == "body_too_long"

    run(body)


def test_a_long_body_on_a_socket_gets_its_answer():
    """The client is still sending when it is refused, and must see the answer all the same."""

    async def body():
        async with live_world(max_body_bytes=100_000) as w:
            content = json.dumps({"prompt": "A" * 20_000_000})
            reply = await w.client.post(
                "/v1/completions", content=content, headers={"content-type": "application/json"}
            )
            error_of(reply, 413)
            assert (await w.complete()).status_code == 200

    run(body)
