"""`slipstream chat` as a user runs it: on a terminal and in a pipe, with a model of its own and with a server."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.live_server import LiveServer, free_port, live_server
from support.plain_client import PlainClient
from support.terminal import CTRL_C, CTRL_D, on_terminal

pytestmark = [pytest.mark.xdist_group("e2e"), pytest.mark.timeout(300)]

CHAT = (str(Path(sys.executable).with_name("slipstream")), "chat")
PROMPT = "you> "
ANSWERED = r"tokens/s.*" + PROMPT
APPLES = "Anna has 12 apples. She gives 5 apples to Ben. How many apples does Anna have left?"
GREETING = "Hello!"
GREEN, DIM = "\x1b[32m", "\x1b[2m"


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with live_server("demo") as one:
        yield one


@pytest.fixture(scope="module")
def greeted(server: LiveServer) -> str:
    """What the model says to `GREETING`, as another client sees it."""
    messages = [{"role": "user", "content": GREETING}]
    answer = PlainClient(server.base_url).chat(model="demo", messages=messages, temperature=0, max_tokens=64)
    text = answer["choices"][0]["message"]["content"]
    assert text
    assert "\n" not in text
    return text


def pipe(lines: list[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    text = "".join(f"{line}\n" for line in lines)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*CHAT, *arguments], input=text, capture_output=True, text=True, env=environment, timeout=120, check=False
    )


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r\n", "\n")


def test_a_model_of_its_own_on_a_terminal(tmp_path):
    with on_terminal(CHAT) as terminal:
        started = terminal.wait_for(PROMPT)
        assert "target weights" in started
        assert "demo on cpu in float32, drafter eagle3 with 3 drafts per step" in started
        terminal.type(f"{APPLES}\n")
        answer = terminal.wait_for(ANSWERED)
        assert "12 - 5 = 7. 7 " in plain(answer)
        assert GREEN in answer
        assert re.search(r"acceptance length [1-4]\.\d\d \(\d+ of \d+ drafts", answer)
        terminal.type("/think on\n")
        terminal.wait_for(PROMPT)
        terminal.type(f"{APPLES}\n")
        thought = terminal.wait_for(ANSWERED)
        assert f"{DIM}One" in thought
        assert "12 - 5 = 7\n7 " in plain(thought)
        terminal.type("/colour off\n")
        terminal.wait_for(PROMPT)
        terminal.type("/think off\n")
        terminal.wait_for(PROMPT)
        terminal.type(f"{GREETING}\n")
        assert "\x1b[" not in terminal.wait_for(ANSWERED).replace("\x1b[?2004l", "").replace("\x1b[?2004h", "")
        terminal.type(f"/save {tmp_path / 'chat.json'}\n")
        terminal.wait_for(f"saved to .*{PROMPT}")
        terminal.type("/quit\n")
        assert terminal.wait_end() == 0
    messages = json.loads((tmp_path / "chat.json").read_text(encoding="utf-8"))["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant"] * 3
    assert messages[3]["reasoning_content"].startswith("One step.")


def test_ctrl_c_stops_an_answer_and_then_ends_the_chat(server, greeted):
    with on_terminal([*CHAT, "--url", server.base_url, "--temperature", "50"]) as terminal:
        terminal.wait_for(PROMPT)
        terminal.type("Go on and on.\n")
        terminal.wait_for(r"(\x1b\[32m.*){5}")
        terminal.type(CTRL_C)
        terminal.wait_for(r"\[stopped\].*" + PROMPT, timeout_s=10)
        terminal.type("/temp 0\n")
        terminal.wait_for(PROMPT)
        terminal.type("/nonsense\n")
        assert "/help lists them" in terminal.wait_for(PROMPT)
        terminal.type("/reset\n")
        terminal.wait_for(PROMPT)
        terminal.type(f"{GREETING}\n")
        assert greeted in plain(terminal.wait_for(ANSWERED))
        assert terminal.wait_end(CTRL_C) == 0
    assert server.metric("vllm:num_requests_running") == 0


def test_no_color_is_honoured(server, greeted):
    with on_terminal([*CHAT, "--url", server.base_url], {"NO_COLOR": "1"}) as terminal:
        terminal.wait_for(PROMPT)
        terminal.type(f"{GREETING}\n")
        assert greeted in terminal.wait_for(ANSWERED)
        assert terminal.wait_end(CTRL_D) == 0
        assert re.findall(r"\x1b\[[\d;]*m", terminal.written) == []


def test_a_pipe_gets_answers_only_and_both_ways_of_running_agree(server, greeted):
    lines = [GREETING, "", APPLES]
    remote = pipe(lines, "--url", server.base_url)
    assert (remote.returncode, remote.stderr) == (0, "")
    assert remote.stdout.startswith(f"{greeted}\n")
    assert remote.stdout.count("\n") == 2
    local = pipe(lines)
    assert (local.returncode, local.stdout) == (0, remote.stdout)


def test_an_error_is_a_sentence_and_the_next_line_is_answered(server, greeted):
    answer = pipe(["word " * 9000, GREETING], "--url", server.base_url)
    assert answer.returncode == 1
    assert answer.stdout == f"{greeted}\n"
    assert answer.stderr.startswith("slipstream: the server answered 400: ")
    assert answer.stderr.count("\n") == 1


def test_a_server_that_is_not_there_is_a_sentence():
    answer = pipe([GREETING], "--url", f"http://127.0.0.1:{free_port()}")
    assert answer.returncode == 2
    assert "cannot be reached" in answer.stderr
    assert answer.stderr.count("\n") == 1
