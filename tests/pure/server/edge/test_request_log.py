"""Every answer carries the call's id, every call ends in one line, and no line holds what was said."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging

import pytest

from slipstream.base.log import set_up_logging
from slipstream.server.edge.request_log import RequestLog
from support.http_world import USER, error_of, live_world, run, world

KEY = "a-key-nobody-may-see"
PROMPT = "PRIVATE WORDS"


@pytest.fixture(autouse=True)
def lines():
    """Everything that is logged, as JSON objects."""
    root, ours = logging.getLogger(), logging.getLogger("slipstream")
    before = list(root.handlers), root.level, ours.level
    stream = io.StringIO()
    set_up_logging("json", "debug", process="server", stream=stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    ours.setLevel(before[2])


def ended(lines, path: str):
    return [line for line in lines() if line["message"] == "request ended" and line["path"] == path]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/health", 200), ("GET", "/v1/models", 200), ("GET", "/nothing", 404), ("DELETE", "/health", 405),
     ("POST", "/v1/completions", 400), ("POST", "/v1/chat/completions", 400)],
)  # fmt: skip
def test_every_answer_names_the_call(lines, method, path, status):
    async def body():
        async with world() as w:
            for given in ("mine-1", None, "not sane"):
                headers = {} if given is None else {"x-request-id": given}
                reply = await w.client.request(method, path, headers=headers)
                assert reply.status_code == status
                named = reply.headers.get_list("x-request-id")
                assert len(named) == 1
                assert (named[0] == given) == (given == "mine-1")
                (line,) = [line for line in ended(lines, path) if line["request_id"] == named[0]]
                assert (line["method"], line["status"], line["client_gone"]) == (method, status, False)
                assert line["duration_s"] >= 0
                assert "num_requests" not in line

    run(body)


def test_an_answer_without_a_key_is_named_too():
    async def body():
        async with world(api_keys=[KEY]) as w:
            reply = await w.client.get("/v1/models", headers={"x-request-id": "mine"})
            assert (reply.status_code, reply.headers["x-request-id"]) == (401, "mine")
            assert reply.headers["request-id"] == "mine"

    run(body)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("is_chat", [False, True])
def test_the_line_says_what_the_call_cost_and_the_engine_knows_its_name(lines, is_chat, stream):
    async def body():
        async with world() as w:
            fields = {"messages": USER} if is_chat else {"prompt": ["ABC", "DE"]}
            path = "/v1/chat/completions" if is_chat else "/v1/completions"
            asked = fields | {"model": "tiny", "stream": stream, "max_tokens": 7, "ignore_eos": True}
            reply = await w.post(path, asked, headers={"x-request-id": "mine"})
            assert reply.status_code == 200
            num = 1 if is_chat else 2
            assert len(w.engine.submitted) == num
            assert len({r.request_id for r in w.engine.submitted}) == num
            assert all(r.request_id.startswith("mine-") for r in w.engine.submitted)
            (line,) = ended(lines, path)
            assert (line["request_id"], line["num_requests"], line["completion_tokens"]) == ("mine", num, 7 * num)
            assert line["prompt_tokens"] == sum(len(r.prompt_token_ids) for r in w.engine.submitted)
            assert (line["queue_s"], line["prefill_s"], line["decode_s"]) == (0.001, 0.002, 0.003)
            assert line["finish_reason"] == "length"
            assert 1 <= line["acceptance_length"] <= 4
            assert line["first_token_s"] >= 0
            assert line["level"] == "info"

    run(body)


def test_a_call_that_a_stop_string_ends_has_the_engines_times(lines):
    async def body():
        async with world() as w:
            reply = await w.complete(prompt="ABCDEF", stop=["C"], max_tokens=50, ignore_eos=True)
            assert reply.json()["choices"][0]["finish_reason"] == "stop"
            (line,) = ended(lines, "/v1/completions")
            assert (line["finish_reason"], line["queue_s"], line["decode_s"]) == ("stop", 0.001, 0.003)

    run(body)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_is_noted(lines, stream):
    async def body():
        async with live_world(step_s=0.01) as w:
            host, port = w.url.removeprefix("http://").split(":")
            _, writer = await asyncio.open_connection(host, int(port))
            fields = {"prompt": "ABC", "max_tokens": 400, "ignore_eos": True, "stream": stream}
            payload = json.dumps(fields).encode()
            head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(payload)}\r\n"
            writer.write(f"{head}content-type: application/json\r\nx-request-id: mine\r\n\r\n".encode() + payload)
            while not w.engine.running:
                await asyncio.sleep(0.005)
            writer.close()
            while not ended(lines, "/v1/completions"):
                await asyncio.sleep(0.01)
            (line,) = ended(lines, "/v1/completions")
            assert (line["request_id"], line["client_gone"], line["finish_reason"]) == ("mine", True, "abort")

    run(body)


def test_a_client_that_stays_to_the_end_of_its_stream_is_not_gone(lines):
    async def body():
        async with live_world() as w:
            for stream in (False, True):
                assert (await w.complete(stream=stream)).status_code == 200
            while len(ended(lines, "/v1/completions")) < 2:
                await asyncio.sleep(0.01)
            assert [line["client_gone"] for line in ended(lines, "/v1/completions")] == [False, False]

    run(body)


def test_probes_are_for_debugging(lines):
    async def body():
        async with world() as w:
            for path in ("/health", "/metrics", "/version"):
                await w.client.get(path)
                assert ended(lines, path)[0]["level"] == ("info" if path == "/version" else "debug")

    run(body)


def test_no_line_holds_a_prompt_a_key_or_a_query(lines):
    async def body():
        async with world(api_keys=[KEY]) as w:
            good = {"authorization": f"Bearer {KEY}"}
            wrong = {"authorization": "Bearer some-wrong-key", "x-api-key": "another-wrong-key"}
            for headers in (good, wrong):
                await w.client.get(f"/v1/models?api_key={KEY}", headers=headers)
                for content in (b'{"prompt": "PRIVATE WORDS', b'{"PRIVATE WORDS": 1}', b'{"model": "PRIVATE WORDS"}'):
                    await w.client.post("/v1/completions", content=content, headers=headers)
                await w.complete(prompt=PROMPT, headers=headers)
                await w.post("/v1/completions", {"prompt": PROMPT, "stop": [PROMPT]}, headers=headers)
                await w.post("/v1/chat/completions", {"messages": [{"role": "user", "content": PROMPT}]}, headers=good)
                await w.post("/tokenize", {"prompt": PROMPT}, headers=headers)

            async def broken(*args, **kwargs):
                raise ValueError(f"cannot read {PROMPT}")

            w.llm.open = broken
            reply = await w.post("/v1/completions", {"prompt": PROMPT}, headers=good)
            assert PROMPT not in error_of(reply, 500)["message"]
        text = json.dumps(lines())
        assert len(lines()) > 15
        for secret in ("PRIVATE", "WORDS", KEY, "wrong-key", "api_key"):
            assert secret not in text

    run(body)


def test_a_fault_is_answered_and_told_once_with_its_place(lines):
    async def body():
        async with world() as w:

            async def broken(*args, **kwargs):
                raise ZeroDivisionError

            w.llm.open = broken
            reply = await w.client.post("/v1/completions", json={"prompt": "a"}, headers={"x-request-id": "mine"})
            assert error_of(reply, 500)["type"] == "internal_error"
            assert reply.headers["x-request-id"] == "mine"
        (fault,) = [line for line in lines() if line["level"] == "error"]
        assert (fault["message"], fault["request_id"], fault["exception"]) == (
            "a request failed", "mine", "ZeroDivisionError",
        )  # fmt: skip
        assert any("completions.py" in place for place in fault["places"])
        assert ended(lines, "/v1/completions")[0]["status"] == 500

    run(body)


def test_a_fault_in_the_middle_of_an_answer_cuts_it(lines):
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise ZeroDivisionError

    async def body():
        sent = []

        async def send(message):
            sent.append(message)

        scope = {"type": "http", "headers": [], "method": "GET", "path": "/x"}
        with contextlib.suppress(ZeroDivisionError):
            await RequestLog(app)(scope, None, send)
            raise AssertionError("the server must hear of it, to close the connection")
        assert [message["type"] for message in sent] == ["http.response.start"]
        assert ended(lines, "/x")[0]["status"] == 200

    run(body)


def test_an_engine_fault_names_the_call(lines):
    async def body():
        async with world() as w:
            w.fake.engine.script = lambda request: 1 / 0
            reply = await w.client.post("/v1/completions", json={"prompt": "a"}, headers={"x-request-id": "mine"})
            assert reply.status_code == 500
        told = [line for line in lines() if line["message"] == "a request cannot be served"]
        assert [(line["request_id"], line["error"]) for line in told] == [("mine", "EngineError")]
        assert ended(lines, "/v1/completions")[0]["finish_reason"] == "error"

    run(body)


def test_what_is_not_http_passes_through():
    async def body():
        seen = []

        async def app(scope, receive, send):
            seen.append(scope["type"])

        await RequestLog(app)({"type": "lifespan"}, None, None)
        assert seen == ["lifespan"]

    run(body)
