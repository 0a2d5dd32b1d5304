"""Bytes that are not a request get a clear answer, and the server lives on."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from support.live_server import LiveServer, live_server

pytestmark = pytest.mark.xdist_group("e2e")

JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with live_server("demo", "--max-num-seqs", "2", "--max-model-len", "256") as one:
        yield one


BODIES = {
    "empty": b"",
    "malformed": b'{"model": "demo", "messages": [',
    "broken UTF-8": b'{"model": "demo", "prompt": "\xff\xfe"}',
    "not an object": b"[1, 2]",
    "deeply nested": b"[" * 20_000 + b"]" * 20_000,
    "number out of range": b'{"model": "demo", "prompt": "a", "temperature": 1e999}',
    "NaN": b'{"model": "demo", "prompt": "a", "temperature": NaN}',
    "wrong type": b'{"model": "demo", "prompt": {"a": 1}}',
    "empty prompt": b'{"model": "demo", "prompt": ""}',
    "token out of vocabulary": b'{"model": "demo", "prompt": [1, 99999999]}',
    "negative token": b'{"model": "demo", "prompt": [-1]}',
    "huge integer": b'{"model": "demo", "prompt": "a", "max_tokens": ' + b"9" * 400 + b"}",
    "lone surrogate": b'{"model": "demo", "prompt": "\\ud800"}',
    "unknown model": b'{"model": "other", "prompt": "a"}',
}


@pytest.mark.parametrize("name", BODIES)
def test_a_bad_body_is_a_400_or_404_that_says_why(server: LiveServer, name: str) -> None:
    reply = httpx.post(f"{server.base_url}/v1/completions", content=BODIES[name], headers=JSON, timeout=30)
    assert reply.status_code in (400, 404), reply.text
    assert len(reply.json()["error"]["message"]) > 10


def test_a_huge_body_is_refused_before_it_is_read(server: LiveServer) -> None:
    body = b'{"model": "demo", "prompt": "' + b"a" * (40 << 20) + b'"}'
    reply = httpx.post(f"{server.base_url}/v1/completions", content=body, headers=JSON, timeout=60)
    assert reply.status_code == 413


@pytest.mark.parametrize("distance", [-1, 0, 1])
def test_a_prompt_at_the_limit(server: LiveServer, distance: int) -> None:
    """A prompt of max_model_len - 1 tokens leaves room for one token; one more leaves none."""
    prompt = [5] * (255 + distance)
    body = {"model": "demo", "prompt": prompt, "max_tokens": 1, "temperature": 0}
    reply = httpx.post(f"{server.base_url}/v1/completions", json=body, timeout=30)
    assert reply.status_code == (400 if distance > 0 else 200), reply.text


def test_after_all_that_it_still_answers(server: LiveServer) -> None:
    body = {"model": "demo", "prompt": "The river", "max_tokens": 4, "temperature": 0}
    assert httpx.post(f"{server.base_url}/v1/completions", json=body, timeout=30).status_code == 200
    assert httpx.get(f"{server.base_url}/health", timeout=5).status_code == 200
