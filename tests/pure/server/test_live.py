"""A real socket: real clients, and clients that leave at any moment."""

from __future__ import annotations

import asyncio
import json
import random
import socket

import openai
import pytest

from slipstream.server.serve import bind
from slipstream.wire.messages import Failed
from support import http_world
from support.http_world import TEXT, USER, live_world, run

EOS = TEXT.tokenizer.control_ids["[e~["]


def words(request):
    del request
    return [*TEXT.tokenizer.encode_plain("ABCDEFGH"), EOS]


def client_of(w, **options):
    return openai.AsyncOpenAI(base_url=f"{w.url}/v1", api_key="x", max_retries=0, **options)


def test_the_openai_package_gets_whole_answers():
    async def body():
        async with live_world(script=words) as w, client_of(w) as client:
            answer = await client.chat.completions.create(
                model="tiny", messages=USER, max_completion_tokens=99, logprobs=True, seed=1, user="u", store=False
            )
            assert answer.choices[0].message.content == "ABCDEFGH"
            assert [entry.token for entry in answer.choices[0].logprobs.content][:2] == ["A", "B"]
            details = answer.usage.completion_tokens_details
            assert details.accepted_prediction_tokens == answer.usage.speculation["num_accepted"] > 0
            text = await client.completions.create(model="tiny", prompt=[[1, 2], [3]], max_tokens=3)
            assert [choice.index for choice in text.choices] == [0, 1]

    run(body)


def test_the_openai_package_gets_streams():
    async def body():
        async with live_world(script=words) as w, client_of(w) as client:
            stream = await client.chat.completions.create(
                model="tiny", messages=USER, stream=True, stop=["GH"], stream_options={"include_usage": True}
            )
            chunks = [chunk async for chunk in stream]
            text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
            assert text == "ABCDEF"
            assert chunks[0].choices[0].delta.role == "assistant"
            assert chunks[-2].choices[0].finish_reason == "stop"
            assert chunks[-1].usage.completion_tokens == 8
            pieces = await client.completions.create(model="tiny", prompt="ABC", stream=True, max_tokens=3)
            assert "".join([piece.choices[0].text async for piece in pieces]) == "ABC"

    run(body)


def test_the_openai_package_gets_typed_errors():
    async def body():
        async with live_world(script=words, max_queue=1, step_s=0.01) as w, client_of(w) as client:
            create = client.chat.completions.create
            with pytest.raises(openai.BadRequestError, match="does not search") as caught:
                await create(model="tiny", messages=USER, web_search_options={})
            assert caught.value.param == "web_search_options"
            with pytest.raises(openai.NotFoundError):
                await create(model="other", messages=USER)
            with pytest.raises(openai.BadRequestError) as caught:
                await create(model="tiny", messages=USER, max_tokens=10**6)
            assert caught.value.code == "context_length_exceeded"
            streams = [
                await create(model="tiny", messages=USER, stream=True, extra_body={"ignore_eos": True})
                for _ in range(5)
            ]
            with pytest.raises(openai.InternalServerError, match="503"):
                await create(model="tiny", messages=USER)
            w.fake.tell(Failed(kind="EngineError", reason="the device is gone"))
            with pytest.raises(openai.APIError, match="the device is gone"):
                [chunk async for chunk in streams[0]]
            for stream in streams:
                await stream.close()

    run(body)


def test_with_a_key_the_openai_package_is_let_in():
    async def body():
        async with live_world(api_keys=["secret"]) as w:
            async with client_of(w) as client:
                with pytest.raises(openai.AuthenticationError):
                    await client.models.list()
            async with client_of(w).with_options(api_key="secret") as client:
                assert len((await client.models.list()).data) == 1

    run(body)


async def leave_at_random(w, rng: random.Random, number: int) -> bool:
    """Send a request, or a part of it, read a little or nothing, and go; return whether anything was read."""
    host, port = w.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    is_chat, is_stream = rng.random() < 0.5, rng.random() < 0.6
    fields = {"messages": USER} if is_chat else {"prompt": ["ABC", "DE"] if rng.random() < 0.3 else "ABC"}
    fields |= {"stream": is_stream, "ignore_eos": True, "max_tokens": 400, "user": str(number)}
    payload = json.dumps(fields).encode()
    path = "/v1/chat/completions" if is_chat else "/v1/completions"
    head = (
        f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(payload)}\r\n\r\n"
    )
    message = head.encode() + payload
    if rng.random() < 0.1:
        message = message[: rng.randrange(len(message))]
    writer.write(message)
    got = b""
    try:
        await asyncio.wait_for(writer.drain(), 1)
        if rng.random() < 0.8:
            got = await asyncio.wait_for(reader.read(rng.choice([1, 100, 2000])), rng.random() * 0.1)
    except (TimeoutError, ConnectionError):
        pass
    if rng.random() < 0.5:
        writer.transport.abort()
    else:
        writer.close()
    return bool(got)


def test_two_hundred_clients_that_leave_leave_nothing_running():
    async def body():
        rng = random.Random(11)
        async with live_world(step_s=0.002, max_queue=500) as w:
            gate = asyncio.Semaphore(16)

            async def one(number):
                async with gate:
                    return await leave_at_random(w, rng, number)

            read = await asyncio.gather(*(one(number) for number in range(200)))
            assert 20 < sum(read) < 200
            for _ in range(500):
                if not w.engine.running and not w.llm.status.num_streams:
                    break
                await asyncio.sleep(0.01)
            assert w.engine.running == {}
            assert w.llm.status.num_streams == 0
            assert w.engine.num_aborts > 100
            assert (await w.complete()).json()["choices"][0]["text"] == "ABC"

    run(body)


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
CONSTRAINED = {
    "/v1/completions": {"prompt": "ABC", "guided_regex": "AB"},
    "/v1/chat/completions": {"messages": USER, "n": 2, "response_format": {"type": "json_object"}},
    "/v1/messages": {
        "model": "tiny",
        "messages": USER,
        "max_tokens": 9,
        "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
    },
    "/v1/responses": {"input": "hi", "text": {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA}}},
}


@pytest.mark.parametrize("is_stream", [True, False])
@pytest.mark.parametrize("path", CONSTRAINED)
def test_a_client_that_leaves_while_its_constraint_is_compiled_waits_for_nothing(monkeypatch, path, is_stream):
    async def body():
        async with live_world(step_s=0.001) as w:
            monkeypatch.setattr(w.engine, "_compile", lambda: None)
            host, port = w.url.removeprefix("http://").split(":")
            _, writer = await asyncio.open_connection(host, int(port))
            payload = json.dumps(CONSTRAINED[path] | {"stream": is_stream}).encode()
            head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            writer.write(f"{head}content-length: {len(payload)}\r\n\r\n".encode() + payload)
            num_choices = CONSTRAINED[path].get("n", 1)
            while len(w.engine.compiling) < num_choices:
                await asyncio.sleep(0.001)
            writer.close()
            for _ in range(1000):
                if not w.engine.compiling:
                    break
                await asyncio.sleep(0.001)
            assert w.engine.compiling == {}, "the engine is told that nobody waits"
            assert w.engine.num_aborts == num_choices
            assert w.llm.status.num_streams == 0

    run(body)


def test_what_a_reader_that_reads_nothing_holds_is_bounded_by_its_request(monkeypatch):
    """The engine ends, the tokens wait in the reader's queue, and nothing of them is lost when it reads after all."""

    def with_short_buffers(host, port):
        listener = bind(host, port)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2048)
        return listener

    monkeypatch.setattr(http_world, "bind", with_short_buffers)

    async def body():
        async with live_world(script=words) as w:
            generations, open_one = [], w.llm.open

            async def recorded(*args, **kwargs):
                generations.append(await open_one(*args, **kwargs))
                return generations[-1]

            monkeypatch.setattr(w.llm, "open", recorded)
            one = socket.socket()
            one.setblocking(False)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            loop = asyncio.get_running_loop()
            host, port = w.url.removeprefix("http://").split(":")
            await loop.sock_connect(one, (host, int(port)))
            fields = {"prompt": ["ABC"] * 3, "stream": True, "ignore_eos": True, "max_tokens": 500, "logprobs": 0}
            payload = json.dumps(fields).encode()
            head = "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            await loop.sock_sendall(one, f"{head}content-length: {len(payload)}\r\n\r\n".encode() + payload)
            while len(generations) < 3 or w.engine.running:
                await asyncio.sleep(0.005)
            assert (await w.complete(max_tokens=100)).status_code == 200
            del generations[3:]
            waiting = [sum(len(delta.token_ids) for delta in one._deltas) for one in generations]
            assert 500 < sum(waiting) <= 3 * 500, "the tokens wait for their reader, and there are no more of them"
            assert w.llm.status.num_streams == 0
            got = b""
            while not got.endswith(b"0\r\n\r\n"):
                piece = await asyncio.wait_for(loop.sock_recv(one, 1 << 16), 10)
                assert piece
                got += piece
            assert got.count(b'finish_reason":"length') == 3
            assert b"data: [DONE]" in got
            assert not any(one._deltas for one in generations)
            one.close()

    run(body)


def test_a_client_that_reads_nothing_does_not_stop_the_others():
    async def body():
        async with live_world(script=words) as w:
            host, port = w.url.removeprefix("http://").split(":")
            _, writer = await asyncio.open_connection(host, int(port))
            payload = json.dumps(
                {"prompt": ["ABC"] * 10, "stream": True, "ignore_eos": True, "max_tokens": 400}
            ).encode()
            head = "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            writer.write(f"{head}content-length: {len(payload)}\r\n\r\n".encode() + payload)
            await asyncio.sleep(0.05)
            for _ in range(5):
                assert (await w.complete()).status_code == 200
            writer.transport.abort()

    run(body)
