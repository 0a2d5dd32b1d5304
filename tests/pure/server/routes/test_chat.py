"""POST /v1/chat/completions: shapes, streams, usage, refusals."""

from __future__ import annotations

import asyncio

import pytest

from slipstream.wire.messages import Failed
from support.http_world import TEXT, USER, error_of, events, live_world, run, world

WORDS = TEXT.tokenizer.encode_plain("ABCDEFGH")
EOS = TEXT.tokenizer.control_ids["[e~["]


def words(request):
    """Answer every prompt with the same eight letters and the end."""
    del request
    return [*WORDS, EOS]


def test_a_whole_answer():
    async def body():
        async with world(script=words) as w:
            answer = (await w.chat()).json()
            (choice,) = answer["choices"]
            assert choice["message"] == {"content": "ABCDEFGH", "role": "assistant", "refusal": None}
            assert (choice["finish_reason"], choice["stop_reason"], choice["index"]) == ("stop", None, 0)
            assert choice["logprobs"] is None
            assert (answer["object"], answer["model"]) == ("chat.completion", "tiny")
            assert answer["id"].startswith("chatcmpl-")
            usage = answer["usage"]
            assert usage["completion_tokens"] == 9
            assert usage["total_tokens"] == usage["prompt_tokens"] + 9
            assert usage["prompt_tokens"] == len(w.engine.submitted[0].prompt_token_ids)
            assert usage["prompt_tokens_details"] == {"cached_tokens": 0}
            speculation = usage["speculation"]
            details = usage["completion_tokens_details"]
            assert speculation["num_verify_steps"] > 0
            assert speculation["num_emitted"] == usage["completion_tokens"] - 1
            assert details["accepted_prediction_tokens"] == speculation["num_accepted"]
            rejected = speculation["num_draft_tokens"] - speculation["num_accepted"]
            assert details["rejected_prediction_tokens"] == rejected

    run(body)


def test_the_prompt_is_the_templates():
    async def body():
        async with world() as w:
            kwargs = {"thinking_mode": "disabled"}
            await w.chat(chat_template_kwargs=kwargs, max_tokens=1)
            await w.chat(messages=[{"role": "user", "content": [{"type": "text", "text": "hi"}]}], max_tokens=1)
            await w.chat(add_generation_prompt=False, max_tokens=1)
            prompts = [request.prompt_token_ids for request in w.engine.submitted]
            template = TEXT.template
            assert list(prompts[0]) == template.encode(USER, template_kwargs=kwargs)
            assert list(prompts[1]) == template.encode(USER)
            assert list(prompts[2]) == template.encode(USER, add_generation_prompt=False)

    run(body)


def test_a_stream_says_the_same_as_the_whole_answer():
    async def body():
        async with world(script=words) as w:
            fields = {"logprobs": True, "temperature": 0.5, "seed": 3}
            whole = (await w.chat(**fields)).json()
            stream = events(await w.chat(**fields, stream=True, stream_options={"include_usage": True}))
            assert stream[-1] == "[DONE]"
            first, *chunks, usage = stream[:-1]
            assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
            assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks) == "ABCDEFGH"
            content = [entry for c in chunks for entry in c["choices"][0]["logprobs"]["content"]]
            assert content == whole["choices"][0]["logprobs"]["content"]
            assert [c["choices"][0]["finish_reason"] for c in chunks] == [None] * (len(chunks) - 1) + ["stop"]
            assert usage["choices"] == []
            assert usage["usage"] == whole["usage"]
            assert all(c["usage"] is None for c in (first, *chunks))
            assert len({c["id"] for c in stream[:-1]}) == 1
            assert {c["object"] for c in stream[:-1]} == {"chat.completion.chunk"}

    run(body)


def test_without_include_usage_chunks_have_no_usage():
    async def body():
        async with world(script=words) as w:
            for options in ({}, {"stream_options": {"include_usage": False}}, {"stream_options": None}):
                stream = events(await w.chat(stream=True, **options))
                assert all("usage" not in chunk for chunk in stream[:-1])
                assert stream[-2]["choices"][0]["finish_reason"] == "stop"

    run(body)


def test_logprobs_name_every_token_with_its_bytes():
    async def body():
        async with world(script=words) as w:
            (choice,) = (await w.chat(logprobs=True, top_logprobs=0)).json()["choices"]
            content = choice["logprobs"]["content"]
            assert len(content) == 9
            assert bytes(b for entry in content for b in entry["bytes"]) == b"ABCDEFGH[e~["
            assert content[0] == {"token": "A", "logprob": -0.5, "bytes": [65], "top_logprobs": []}

    run(body)


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_cuts_text_tokens_and_counts(stream):
    async def body():
        async with world(script=words) as w:
            reply = await w.chat(stop=["EF"], logprobs=True, stream=stream, ignore_eos=True)
            if stream:
                choices = [chunk["choices"][0] for chunk in events(reply)[1:-1]]
                text = "".join(choice["delta"].get("content", "") for choice in choices)
                last = choices[-1]
                content = [entry for choice in choices for entry in (choice["logprobs"] or {"content": []})["content"]]
            else:
                (last,) = reply.json()["choices"]
                text, content = last["message"]["content"], last["logprobs"]["content"]
                assert reply.json()["usage"]["completion_tokens"] == 6
            assert (text, last["finish_reason"], last["stop_reason"]) == ("ABCD", "stop", "EF")
            assert "".join(entry["token"] for entry in content) == "ABCDEF"
            await asyncio.sleep(0.01)
            assert w.engine.running == {}

    run(body)


def test_limits_of_the_answer():
    async def body():
        async with world(script=words) as w:
            for name in ("max_tokens", "max_completion_tokens"):
                answer = (await w.chat(**{name: 3})).json()
                assert answer["choices"][0]["message"]["content"] == "ABC"
                assert answer["choices"][0]["finish_reason"] == "length"
            assert (await w.chat(max_tokens=3, max_completion_tokens=3)).status_code == 200
            error = error_of(await w.chat(max_tokens=3, max_completion_tokens=4), 400)
            assert error["param"] == "max_completion_tokens"
            answer = (await w.chat(ignore_eos=True)).json()
            assert answer["usage"]["total_tokens"] == w.engine.facts.max_model_len
            error = error_of(await w.chat(max_tokens=10**7), 400)
            assert error["code"] == "context_length_exceeded"
            error = error_of(await w.chat(messages=[{"role": "user", "content": "A" * 600}]), 400)
            assert (error["code"], error["param"]) == ("context_length_exceeded", "messages")

    run(body)


def test_sampling_fields_reach_the_engine():
    async def body():
        async with world() as w:
            fields = {
                "temperature": 0,
                "top_p": 0.5,
                "top_k": 7,
                "min_p": 0.25,
                "seed": -5,
                "stop": "x",
                "stop_token_ids": [3, 4],
                "ignore_eos": True,
                "skip_special_tokens": False,
                "include_stop_str_in_output": True,
                "max_tokens": 2,
            }
            await w.chat(**fields)
            request = w.engine.submitted[0]
            sampling = request.sampling
            sent = {name: getattr(sampling, name) for name in fields}
            assert sent == fields | {"stop": ("x",), "stop_token_ids": (3, 4), "temperature": 0.0}
            assert (request.seed, request.stop_token_ids, request.eos_token_ids) == (-5, (3, 4), ())

    run(body)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0].type"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": "0.5"}, "temperature"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_tokens": 1.0}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"stream": 1}, "stream"),
        ({"stop": ["a", 5]}, "stop"),
        ({"stop": [""]}, "stop"),
        ({"stop": "a" * 20_000}, "stop"),
        ({"seed": 2**63}, "seed"),
        ({"logprobs": 1}, "logprobs"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"continuous_usage_stats": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"surprise": True}}, "stream_options"),
        ({"surprise": 1}, "surprise"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"n": 2}, "n"),
        ({"n": True}, "n"),
        ({"presence_penalty": 0.5}, "presence_penalty"),
        ({"chat_template": "x"}, "chat_template"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
        ({"stop_token_ids": [400]}, "stop_token_ids"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_cannot_be_served_is_a_400_that_names_the_field(fields, param, stream):
    async def body():
        async with world() as w:
            asked = {"stream": True} | fields if stream and param != "stream_options" else fields
            assert error_of(await w.chat(**asked), 400)["param"] == param
            assert w.engine.submitted == []

    run(body)


def test_another_model_is_not_found():
    async def body():
        async with world() as w:
            error = error_of(await w.chat(model="gpt-4"), 404)
            assert (error["param"], error["code"], error["type"]) == ("model", "model_not_found", "not_found_error")
            assert (await w.chat(model=None)).status_code == 200

    run(body)


def test_a_full_queue_is_a_503_with_retry_after():
    async def body():
        async with world(step_s=0.01, max_queue=1) as w:
            slow = {"ignore_eos": True, "max_tokens": 100}
            held = [asyncio.create_task(w.chat(**slow)) for _ in range(5)]
            while w.llm.status.num_streams < 5:
                await asyncio.sleep(0.001)
            reply = await w.chat()
            assert error_of(reply, 503)["type"] == "overloaded_error"
            assert int(reply.headers["retry-after"]) >= 1
            for task in held:
                task.cancel()
            await asyncio.gather(*held, return_exceptions=True)

    run(body)


def test_the_engines_death_in_a_whole_answer_is_a_500():
    async def body():
        async with world(step_s=0.01) as w:
            asking = asyncio.create_task(w.chat(ignore_eos=True))
            while not w.engine.running:
                await asyncio.sleep(0.001)
            w.fake.tell(Failed(kind="EngineError", reason="the device is gone"))
            assert "the device is gone" in error_of(await asking, 500)["message"]

    run(body)


def test_the_engines_death_in_a_stream_is_an_error_event():
    async def body():
        async with live_world(step_s=0.01) as w:
            fields = {"model": "tiny", "messages": USER, "ignore_eos": True, "stream": True}
            async with w.client.stream("POST", "/v1/chat/completions", json=fields) as reply:
                lines = reply.aiter_lines()
                assert '"role":"assistant"' in await anext(lines)
                w.fake.tell(Failed(kind="EngineError", reason="the device is gone"))
                rest = [line async for line in lines if line]
            assert "the device is gone" in rest[-1]
            assert rest[-1].startswith('data: {"error":')
            assert not any("[DONE]" in line for line in rest)

    run(body)
