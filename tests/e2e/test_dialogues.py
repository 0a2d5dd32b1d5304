"""The recorded dialogues sent to a real server: the prompt that the model reads is the recorded one."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from support import dialogues
from support.live_server import LiveServer, live_server
from support.plain_client import PlainClient

pytestmark = pytest.mark.xdist_group("e2e")


UNREAD = {"09_unknown_variable": "mood", "10_effort": "reasoning_effort"}
"""Dialogues with a variable that the bundled template does not read, which a server refuses."""


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with live_server("demo", "--max-num-seqs", "4") as one:
        yield one


@pytest.mark.parametrize("name", dialogues.names())
def test_a_dialogue_is_read_as_recorded(server: LiveServer, name: str) -> None:
    asked = dialogues.dialogue(name)
    fields = {
        "messages": asked["messages"],
        "tools": asked.get("tools", []),
        "chat_template_kwargs": asked.get("template_kwargs", {}),
        "add_generation_prompt": asked.get("add_generation_prompt", True),
    }
    if name in UNREAD:
        for path in ("/tokenize", "/v1/chat/completions"):
            reply = httpx.post(f"{server.base_url}{path}", json=fields, timeout=30)
            assert reply.status_code == 400
            assert f"chat_template_kwargs.{UNREAD[name]}: this checkpoint's chat template does not" in reply.text
        return
    recorded = asked["records"]["demo"]["token_ids"]
    assert httpx.post(f"{server.base_url}/tokenize", json=fields, timeout=30).json()["tokens"] == recorded
    answer = PlainClient(server.base_url).chat(model="demo", max_tokens=1, **fields)
    assert answer["usage"]["prompt_tokens"] == len(recorded)
