"""POST /v1/messages and count_tokens: prompts, answers, streams, usage, refusals."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from anthropic.types import Message, RawMessageStreamEvent
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from slipstream.server.protocol.endpoints import COUNT_TOKENS, MESSAGES
from slipstream.wire.grammar import GrammarSpec
from slipstream.wire.messages import Failed
from support.answer_world import WEATHER, calls_text, json_values, named_events, prompt_of, says, tool_text
from support.http_world import USER, live_world, run, world

TOOL = {"name": "weather", "description": "tells it", "input_schema": WEATHER}
LEAST = {"model": "tiny", "messages": USER, "max_tokens": 200}
ROOMY = {"max_model_len": 2048, "num_cache_tokens": 4096}
PATH = "/v1/messages"


def served(text="ABCDEFGH", **options):
    return world(script=says(text), text=tool_text(), **options)


async def answer(w, **fields):
    reply = await w.post(PATH, LEAST | fields)
    assert reply.status_code == 200, reply.text
    Message.model_validate(reply.json(), strict=True)
    return reply.json()


async def stream(w, **fields):
    events = named_events(await w.post(PATH, LEAST | fields | {"stream": True}))
    for event in events:
        TypeAdapter(RawMessageStreamEvent).validate_python(event, strict=True)
    return events


def error_of(reply, status, kind="invalid_request_error"):
    assert reply.status_code == status, reply.text
    body = reply.json()
    assert (set(body), body["type"]) == ({"type", "error"}, "error")
    assert set(body["error"]) == {"type", "message"}
    assert body["error"]["type"] == kind
    return body["error"]["message"]


def joined(events, kind):
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    field = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}[kind]
    return "".join(delta[field] for delta in deltas if delta["type"] == kind)


def test_an_answer():
    async def body():
        async with served() as w:
            message = await answer(w)
            assert message["content"] == [{"type": "text", "text": "ABCDEFGH", "citations": None}]
            assert (message["stop_reason"], message["stop_sequence"]) == ("end_turn", None)
            assert (message["model"], message["role"]) == ("tiny", "assistant")
            usage = message["usage"]
            assert usage["input_tokens"] == len(w.engine.submitted[0].prompt_token_ids)
            assert usage["output_tokens"] == 9

    run(body)


def test_it_is_the_answer_of_chat_completions():
    async def body():
        async with served("thought</mm:think>said") as w:
            fields = {"temperature": 0.0, "top_p": 0.5, "top_k": 3, "max_tokens": 30}
            chat = await w.chat(**fields, stop=["x"], chat_template_kwargs={"thinking_mode": "enabled"})
            message = await answer(w, **fields, stop_sequences=["x"], thinking={"type": "enabled", "budget_tokens": 9})
            assert chat.status_code == 200
            first, second = w.engine.submitted
            assert first.prompt_token_ids == second.prompt_token_ids
            assert first.sampling == second.sampling
            assert first.max_seq_len == second.max_seq_len
            assert message["content"][1]["text"] == "said"

    run(body)


def test_reasoning_and_text():
    async def body():
        async with served("let me see</mm:think>\nyes") as w:
            fields = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
            message = await answer(w, **fields)
            assert [(b["type"], b.get("thinking", b.get("text"))) for b in message["content"]] == [
                ("thinking", "let me see"),
                ("text", "yes"),
            ]
            assert message["content"][0]["signature"]
            assert prompt_of(w).endswith("<mm:think>")
            events = await stream(w, **fields)
            assert (joined(events, "thinking_delta"), joined(events, "text_delta")) == ("let me see", "yes")
            await answer(w, thinking={"type": "disabled"})
            assert prompt_of(w).endswith("</mm:think>")

    run(body)


def test_a_call_and_its_result():
    async def body():
        async with served("Looking." + calls_text(("weather", {"city": "Rome", "days": 2})), facts=ROOMY) as w:
            message = await answer(w, tools=[TOOL])
            text, call = message["content"]
            assert text["text"] == "Looking."
            assert (call["name"], call["input"]) == ("weather", {"city": "Rome", "days": 2})
            assert message["stop_reason"] == "tool_use"
            events = await stream(w, tools=[TOOL])
            assert msgspec.json.decode(joined(events, "input_json_delta")) == call["input"]
            assert events[-2]["delta"]["stop_reason"] == "tool_use"
            result = {"type": "tool_result", "tool_use_id": call["id"], "content": "sunny"}
            turns = [*USER, {"role": "assistant", "content": message["content"]}, {"role": "user", "content": [result]}]
            await answer(w, messages=turns, tools=[TOOL])
            assert '<invoke name="weather">' in prompt_of(w)
            assert prompt_of(w).endswith("]~b]tool\n<response>sunny</response>[e~[\n]~b]ai\n</mm:think>")
            assert '"name": "weather"' in prompt_of(w)

    run(body)


def test_a_stream_says_the_same_as_the_whole_message():
    async def body():
        async with served("ABCDEFGH") as w:
            whole = await answer(w)
            events = await stream(w)
            assert joined(events, "text_delta") == whole["content"][0]["text"]
            assert events[0]["message"]["usage"]["input_tokens"] == whole["usage"]["input_tokens"]
            assert events[-2]["usage"] == whole["usage"]
            assert events[-1] == {"type": "message_stop"}
            assert w.llm.status.num_streams == 0

    run(body)


def test_limits_and_stop_sequences():
    async def body():
        async with served() as w:
            message = await answer(w, max_tokens=3)
            assert (message["content"][0]["text"], message["stop_reason"]) == ("ABC", "max_tokens")
            assert message["usage"]["output_tokens"] == 3
            message = await answer(w, stop_sequences=["EF", "zz"])
            assert message["content"][0]["text"] == "ABCD"
            assert (message["stop_reason"], message["stop_sequence"]) == ("stop_sequence", "EF")
            assert "context" in error_of(await w.post(PATH, LEAST | {"max_tokens": 10**7}), 400)
            told = error_of(await w.post(PATH, LEAST | {"stop_sequences": ["x" * 20_000]}), 400)
            assert told.startswith("stop_sequences: ")

    run(body)


def test_what_the_text_must_look_like_reaches_the_engine():
    async def body():
        async with served() as w:
            form = {"type": "json_schema", "schema": {"type": "object"}}
            await answer(w, output_config={"format": form, "effort": "low"})
            assert w.engine.submitted[0].sampling.grammar == GrammarSpec.json_schema({"type": "object"})

    run(body)


def test_tokens_are_counted_as_they_would_be_prompted():
    async def body():
        async with served() as w:
            fields = {"tools": [TOOL], "system": "be brief", "thinking": {"type": "enabled", "budget_tokens": 1}}
            message = await answer(w, **fields)
            reply = await w.post(f"{PATH}/count_tokens", {"model": "tiny", "messages": USER} | fields)
            assert reply.json() == {"input_tokens": message["usage"]["input_tokens"]}
            assert len(w.engine.submitted) == 1
            open_ = [*USER, {"role": "assistant", "content": "I say"}]
            more = await w.post(f"{PATH}/count_tokens", {"model": "tiny", "messages": open_})
            assert more.json()["input_tokens"] > 0
            error_of(await w.post(f"{PATH}/count_tokens", LEAST), 400)

    run(body)


def test_errors_have_the_shape_of_this_api():
    async def body():
        async with served() as w:
            assert "max_tokens is missing" in error_of(await w.post(PATH, {"model": "tiny", "messages": USER}), 400)
            error_of(await w.post(PATH, LEAST | {"model": "other"}), 404, "not_found_error")
            error_of(await w.post(f"{PATH}/batches", {}), 404, "not_found_error")
            error_of(await w.client.get(PATH), 405)
            error_of(await w.client.post(PATH, content=b"{", headers={"content-type": "application/json"}), 400)
            error_of(await w.post(PATH, LEAST | {"messages": [{"role": "user", "content": "A" * 10**5}]}), 400)
        async with served(max_body_bytes=10) as w:
            error_of(await w.post(PATH, LEAST), 413, "request_too_large")
        async with served(ready=False) as w:
            reply = await w.post(PATH, LEAST)
            error_of(reply, 503, "overloaded_error")
            assert reply.headers["retry-after"] == "1"

    run(body)


def test_the_key_may_come_in_the_header_of_this_api():
    async def body():
        async with served(api_keys=["k"]) as w:
            error_of(await w.post(PATH, LEAST), 401, "authentication_error")
            error_of(await w.post(PATH, LEAST, headers={"x-api-key": "j"}), 401, "authentication_error")
            for headers in ({"x-api-key": "k"}, {"authorization": "Bearer k"}):
                assert (await w.post(PATH, LEAST, headers=headers)).status_code == 200

    run(body)


def test_an_error_in_the_middle_is_an_error_event():
    async def body():
        async with served("A" * 400, step_s=0.01) as w:
            replying = asyncio.create_task(w.post(PATH, LEAST | {"stream": True}))
            while not w.engine.running:
                await asyncio.sleep(0.005)
            await asyncio.sleep(0.05)
            w.fake.tell(Failed(kind="EngineError", reason="told to die"))
            events = named_events(await replying)
            assert events[0]["type"] == "message_start"
            assert (events[-1]["type"], events[-1]["error"]["type"]) == ("error", "api_error")
            assert "told to die" in events[-1]["error"]["message"]

    run(body)


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_client_that_leaves_ends_its_request(is_stream):
    async def body():
        async with live_world(script=says("A" * 400), step_s=0.01, text=tool_text()) as w:
            asking = asyncio.create_task(w.post(PATH, LEAST | {"stream": is_stream}))
            while not w.engine.running:
                await asyncio.sleep(0.005)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            while w.engine.running:
                await asyncio.sleep(0.005)
            assert w.engine.num_aborts == 1
            assert w.llm.status.num_streams == 0

    run(body)


def fields_of(endpoint):
    names = [*endpoint.accepts.model_fields, *(field.name for field in (*endpoint.ignored, *endpoint.refused)), "other"]
    return st.dictionaries(st.sampled_from(names), json_values, max_size=5)


blocks = st.dictionaries(
    st.sampled_from(["type", "text", "thinking", "id", "name", "input", "tool_use_id", "content", "signature"]),
    st.sampled_from(["text", "thinking", "tool_use", "tool_result", "image"]) | json_values,
)
turns = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["user", "assistant", "system", "tool"]),
        "content": st.lists(blocks, max_size=3) | json_values,
    }
)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_no_request_makes_the_server_fail(data):
    endpoint = data.draw(st.sampled_from([MESSAGES, COUNT_TOKENS]))
    fields = (LEAST if endpoint is MESSAGES else {"model": "tiny"}) | data.draw(fields_of(endpoint))
    if data.draw(st.booleans()):
        fields["messages"] = data.draw(st.lists(turns, min_size=1, max_size=3))

    async def body():
        async with served("AB") as w:
            reply = await w.post(endpoint.path, fields)
            if reply.status_code != 200:
                assert reply.status_code in (400, 404), reply.text
                error_of(
                    reply, reply.status_code, "invalid_request_error" if reply.status_code == 400 else "not_found_error"
                )
            elif fields.get("stream"):
                assert named_events(reply)[-1]["type"] == "message_stop"
            assert w.llm.status.num_streams == 0
            assert w.llm.status.state == "ready"

    run(body)
