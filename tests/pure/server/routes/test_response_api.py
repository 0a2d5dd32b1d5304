"""POST /v1/responses: prompts, answers, streams, usage, refusals."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from slipstream.server.protocol.endpoints import RESPONSES
from slipstream.wire.grammar import GrammarSpec
from slipstream.wire.messages import Failed, RequestOutput
from support.answer_world import WEATHER, calls_text, json_values, named_events, prompt_of, says, tool_text
from support.http_world import USER, error_of, live_world, run, world

TOOL = {"type": "function", "name": "weather", "description": "tells it", "parameters": WEATHER, "strict": False}
LEAST = {"model": "tiny", "input": "hi", "max_output_tokens": 200}
ROOMY = {"max_model_len": 2048, "num_cache_tokens": 4096}
PATH = "/v1/responses"


def served(text="ABCDEFGH", **options):
    return world(script=says(text), text=tool_text(), **options)


async def answer(w, **fields):
    reply = await w.post(PATH, LEAST | fields)
    assert reply.status_code == 200, reply.text
    Response.model_validate(reply.json())
    return reply.json()


async def stream(w, **fields):
    events = named_events(await w.post(PATH, LEAST | fields | {"stream": True}))
    for event in events:
        TypeAdapter(ResponseStreamEvent).validate_python(event)
    return events


def joined(events, kind):
    return "".join(event["delta"] for event in events if event["type"] == f"response.{kind}.delta")


def test_an_answer():
    async def body():
        async with served() as w:
            found = await answer(w)
            (item,) = found["output"]
            assert (item["type"], item["content"][0]["text"], item["status"]) == ("message", "ABCDEFGH", "completed")
            assert (found["status"], found["object"], found["model"]) == ("completed", "response", "tiny")
            usage = found["usage"]
            assert usage["input_tokens"] == len(w.engine.submitted[0].prompt_token_ids)
            assert (usage["output_tokens"], usage["total_tokens"]) == (9, usage["input_tokens"] + 9)

    run(body)


def test_it_is_the_answer_of_chat_completions():
    async def body():
        async with served("thought</mm:think>said") as w:
            fields = {"temperature": 0.5, "top_p": 0.5, "top_k": 3, "seed": 7}
            kwargs = {"thinking_mode": "enabled"}
            chat = await w.chat(**fields, max_completion_tokens=30, chat_template_kwargs=kwargs)
            found = await answer(w, **fields, max_output_tokens=30, input=USER, reasoning={"effort": "high"})
            assert chat.status_code == 200
            first, second = w.engine.submitted
            assert first.prompt_token_ids == second.prompt_token_ids
            assert (first.sampling, first.seed) == (second.sampling, second.seed)
            assert found["output"][1]["content"][0]["text"] == "said"

    run(body)


def test_without_a_limit_the_context_is_the_limit():
    async def body():
        async with served("A" * 600) as w:
            found = await answer(w, max_output_tokens=None)
            assert found["usage"]["total_tokens"] == w.engine.facts.max_model_len
            assert (found["status"], found["max_output_tokens"]) == ("incomplete", None)

    run(body)


def test_reasoning_and_text():
    async def body():
        async with served("let me see</mm:think>\nyes") as w:
            found = await answer(w, reasoning={"effort": "low", "summary": "auto"})
            assert [item["content"][0]["text"] for item in found["output"]] == ["let me see", "yes"]
            assert found["reasoning"] == {"effort": "low", "summary": None}
            assert 0 < found["usage"]["output_tokens_details"]["reasoning_tokens"] < found["usage"]["output_tokens"]
            assert prompt_of(w).endswith("<mm:think>")
            events = await stream(w, reasoning={"effort": "low"})
            assert (joined(events, "reasoning_text"), joined(events, "output_text")) == ("let me see", "yes")
            await answer(w, reasoning={"effort": "none"})
            assert prompt_of(w).endswith("</mm:think>")

    run(body)


def test_a_call_and_its_result():
    async def body():
        async with served("Looking." + calls_text(("weather", {"city": "Rome", "days": 2})), facts=ROOMY) as w:
            found = await answer(w, tools=[TOOL])
            message, call = found["output"]
            assert message["content"][0]["text"] == "Looking."
            assert msgspec.json.decode(call["arguments"]) == {"city": "Rome", "days": 2}
            assert (call["name"], found["status"]) == ("weather", "completed")
            events = await stream(w, tools=[TOOL])
            assert joined(events, "function_call_arguments") == call["arguments"]
            result = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
            await answer(w, input=[*USER, *found["output"], result], tools=[TOOL])
            assert '<invoke name="weather">' in prompt_of(w)
            assert prompt_of(w).endswith("]~b]tool\n<response>sunny</response>[e~[\n]~b]ai\n</mm:think>")

    run(body)


def test_a_stream_says_the_same_as_the_whole_answer():
    async def body():
        async with served() as w:
            whole = await answer(w, seed=1)
            events = await stream(w, seed=1)
            assert joined(events, "output_text") == "ABCDEFGH"
            last = events[-1]["response"]
            assert last["usage"] == whole["usage"]
            assert last["output"][0]["content"] == whole["output"][0]["content"]
            assert w.llm.status.num_streams == 0

    run(body)


def test_a_limit_makes_it_incomplete():
    async def body():
        async with served() as w:
            found = await answer(w, max_output_tokens=3)
            assert found["output"][0]["content"][0]["text"] == "ABC"
            assert (found["status"], found["output"][0]["status"]) == ("incomplete", "incomplete")
            assert found["incomplete_details"] == {"reason": "max_output_tokens"}
            assert (await stream(w, max_output_tokens=3))[-1]["type"] == "response.incomplete"

    run(body)


def test_what_the_text_must_look_like_reaches_the_engine():
    async def body():
        async with served() as w:
            form = {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}
            assert (await answer(w, text={"format": form}))["text"] == {"format": form}
            assert w.engine.submitted[0].sampling.grammar == GrammarSpec.json_schema({"type": "object"})

    run(body)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"text": {"format": {"type": "json_object"}}}, "text"),
        ({"tools": [TOOL], "tool_choice": "required"}, "tools"),
    ],
)
def test_a_constraint_that_the_engine_refuses_is_named(monkeypatch, fields, param):
    async def body():
        async with served(facts=ROOMY) as w:

            def refuse():
                for request_id in w.engine.compiling:
                    told = {"error": "no text satisfies it", "error_kind": "RequestError"}
                    output = RequestOutput(
                        request_id=request_id, finish_reason="error", error_code="invalid_grammar", **told
                    )
                    w.engine._news.append(output)
                w.engine.compiling.clear()

            monkeypatch.setattr(w.engine, "_compile", refuse)
            assert error_of(await w.post(PATH, LEAST | fields), 400)["param"] == param

    run(body)


def test_errors_name_the_fields_of_this_api():
    async def body():
        async with served() as w:
            error = error_of(await w.post(PATH, LEAST | {"max_output_tokens": 10**7}), 400)
            assert (error["param"], error["code"]) == ("max_output_tokens", "context_length_exceeded")
            assert "lower max_output_tokens to" in error["message"]
            for text in ("A" * 600, "A" * 10**5):
                error = error_of(await w.post(PATH, {"input": text}), 400)
                assert (error["param"], error["code"]) == ("input", "context_length_exceeded")
            error = error_of(await w.post(PATH, LEAST | {"previous_response_id": "resp_1"}), 400)
            assert (error["param"], error["code"]) == ("previous_response_id", "unsupported_feature")
            assert error_of(await w.post(PATH, {"input": []}), 400)["param"] == "input"
            assert error_of(await w.post(PATH, LEAST | {"model": "x"}), 404)["code"] == "model_not_found"

    run(body)


def test_an_error_in_the_middle_is_a_failed_response():
    async def body():
        async with served("A" * 400, step_s=0.01) as w:
            replying = asyncio.create_task(w.post(PATH, LEAST | {"stream": True}))
            while not w.engine.running:
                await asyncio.sleep(0.005)
            await asyncio.sleep(0.05)
            w.fake.tell(Failed(kind="EngineError", reason="told to die"))
            events = named_events(await replying)
            assert events[-1]["type"] == "response.failed"
            failed = events[-1]["response"]
            assert failed["error"]["code"] == "server_error"
            assert "told to die" in failed["error"]["message"]
            assert failed["output"][0]["content"][0]["text"] == joined(events, "output_text") != ""
            assert [event["sequence_number"] for event in events] == list(range(len(events)))

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


names = [
    *RESPONSES.accepts.model_fields, *(field.name for field in (*RESPONSES.ignored, *RESPONSES.refused)), "other"
]  # fmt: skip
items = st.dictionaries(
    st.sampled_from(["type", "role", "content", "id", "call_id", "name", "arguments", "output", "summary", "status"]),
    st.sampled_from(["message", "reasoning", "function_call", "function_call_output", "user", "assistant", "{}"])
    | st.lists(st.fixed_dictionaries({"type": st.sampled_from(["input_text", "reasoning_text"]), "text": json_values}))
    | json_values,
)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.sampled_from(names), json_values, max_size=5), st.none() | st.lists(items, max_size=3))
def test_no_request_makes_the_server_fail(fields, given_input):
    fields = LEAST | fields | ({} if given_input is None else {"input": given_input})

    async def body():
        async with served("AB") as w:
            reply = await w.post(PATH, fields)
            if reply.status_code != 200:
                assert reply.status_code in (400, 404), reply.text
                error_of(reply, reply.status_code)
            elif fields.get("stream"):
                assert named_events(reply)[-1]["type"] in ("response.completed", "response.incomplete")
            assert w.llm.status.num_streams == 0
            assert w.llm.status.state == "ready"

    run(body)
