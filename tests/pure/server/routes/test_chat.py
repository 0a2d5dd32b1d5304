"""POST /v1/chat/completions: shapes, streams, usage, refusals."""

from __future__ import annotations

import asyncio

import pytest

from slipstream.demo import demo_path
from slipstream.frontend.processor import TextParts
from slipstream.text.tools.render import render_tool_calls
from slipstream.wire.messages import Failed
from support.http_world import TEXT, USER, error_of, events, live_world, run, world

TOOLS = [{"type": "function", "function": {"name": "f"}}]
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


def test_usage_in_every_chunk():
    async def body():
        async with world() as w:
            options = {"include_usage": True, "continuous_usage_stats": True}
            fields = {"n": 2, "return_token_ids": True, "max_tokens": 5, "stream": True}
            *chunks, last, done = events(await w.chat(**fields, stream_options=options))
            assert done == "[DONE]"
            num_prompt_tokens = len(chunks[0]["prompt_token_ids"])
            counts = [0, 0]
            for chunk in chunks:
                (choice,) = chunk["choices"]
                counts[choice["index"]] += len(choice.get("token_ids") or [])
                assert chunk["usage"] == {
                    "prompt_tokens": num_prompt_tokens,
                    "completion_tokens": counts[choice["index"]],
                    "total_tokens": num_prompt_tokens + counts[choice["index"]],
                }
            assert counts[0] > 0
            assert last["usage"]["completion_tokens"] == sum(counts)

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
                error = error_of(await w.chat(**{name: 10**7}), 400)
                assert (error["param"], error["message"].count(f"lower {name} to")) == (name, 1)
            assert (await w.chat(max_tokens=3, max_completion_tokens=3)).status_code == 200
            error = error_of(await w.chat(max_tokens=3, max_completion_tokens=4), 400)
            assert error["param"] == "max_completion_tokens"
            answer = (await w.chat(ignore_eos=True)).json()
            assert answer["usage"]["total_tokens"] == w.engine.facts.max_model_len
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
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": TOOLS, "tool_choice": "always"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice.function.name"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"function_call": "auto"}, "function_call"),
        ({"reasoning_effort": "high"}, "reasoning_effort"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"continue_final_message": True}, "continue_final_message"),
        ({"echo": True}, "echo"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0]"),
        ({"n": 0}, "n"),
        ({"n": 100}, "n"),
        ({"n": True}, "n"),
        ({"presence_penalty": 2.5}, "presence_penalty"),
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


DEMO = TextParts.load(demo_path())
WEATHER = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]
CALL = render_tool_calls([("weather", {"city": "Rome"})])


def saying(text: str):
    """Serve the demo model's tokenizer and template over an engine that says a text and ends."""
    tokens = [*DEMO.tokenizer.encode(text), *DEMO.tokenizer.eos_token_ids]
    facts = {"vocab_size": DEMO.tokenizer.vocab_size, "max_model_len": 2048, "num_cache_tokens": 4096}
    return world(script=lambda request: tokens, text=DEMO, facts=facts)


def joined(stream) -> dict:
    """Return the message that the chunks of a stream with one choice amount to."""
    message: dict = {"tool_calls": {}}
    for chunk in stream:
        for choice in chunk["choices"]:
            delta = dict(choice["delta"])
            for call in delta.pop("tool_calls", ()):
                kept = message["tool_calls"].setdefault(call["index"], {"name": "", "arguments": "", "id": ""})
                kept["id"] += call.get("id", "")
                kept["name"] += call["function"].get("name", "")
                kept["arguments"] += call["function"]["arguments"]
            for field, text in delta.items():
                message[field] = message.get(field, "") + text
    return message


def test_reasoning_content_and_calls():
    async def body():
        async with saying(f"I think.</mm:think>\nLet me look.\n{CALL}") as w:
            fields = {"tools": WEATHER, "chat_template_kwargs": {"thinking_mode": "enabled"}}
            (choice,) = (await w.chat(**fields)).json()["choices"]
            (call,) = choice["message"].pop("tool_calls")
            assert choice["message"] == {
                "role": "assistant",
                "content": "Let me look.",
                "reasoning_content": "I think.",
                "refusal": None,
            }
            assert (call["type"], call["function"]) == ("function", {"name": "weather", "arguments": '{"city":"Rome"}'})
            assert choice["finish_reason"] == "tool_calls"
            stream = events(await w.chat(**fields, stream=True))[:-1]
            message = joined(stream)
            assert (message["content"], message["reasoning_content"]) == ("Let me look.", "I think.")
            (call,) = message["tool_calls"].values()
            assert (call["name"], call["arguments"]) == ("weather", '{"city":"Rome"}')
            assert stream[-1]["choices"][0]["finish_reason"] == "tool_calls"
            assert "I think." not in (await w.chat(**fields, include_reasoning=False)).text

    run(body)


@pytest.mark.parametrize(("choice", "is_call"), [(None, True), ("auto", True), ("none", False)])
def test_calls_are_looked_for_unless_the_choice_is_none(choice, is_call):
    async def body():
        async with saying(CALL) as w:
            (told,) = (await w.chat(tools=WEATHER, tool_choice=choice)).json()["choices"]
            assert ("tool_calls" in told["message"]) == is_call
            assert told["message"]["content"] == (None if is_call else CALL)
            (told,) = (await w.chat()).json()["choices"]
            assert told["message"]["content"] == CALL

    run(body)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
def test_a_forced_call_reaches_the_engine_as_a_grammar(choice):
    async def body():
        async with saying(CALL) as w:
            (told,) = (await w.chat(tools=WEATHER, tool_choice=choice)).json()["choices"]
            assert told["message"]["tool_calls"][0]["function"]["name"] == "weather"
            assert w.engine.submitted[0].grammar_starts == "answer"
            thinking = {"thinking_mode": "enabled"}
            await w.chat(tools=WEATHER, tool_choice=choice, chat_template_kwargs=thinking)
            assert w.engine.submitted[1].grammar_starts == "after_reasoning"
            assert all(request.sampling.grammar.kind == "grammar" for request in w.engine.submitted)
            error = error_of(
                await w.chat(tools=WEATHER, tool_choice=choice, response_format={"type": "json_object"}), 400
            )
            assert error["param"] == "tool_choice"

    run(body)


def test_a_call_and_its_result_are_part_of_the_next_prompt():
    async def body():
        async with saying(CALL) as w:
            (told,) = (await w.chat(tools=WEATHER)).json()["choices"]
            answer = told["message"]
            (call,) = answer["tool_calls"]
            result = {"role": "tool", "tool_call_id": call["id"], "content": "sunny"}
            assert (await w.chat(tools=WEATHER, messages=[*USER, answer, result])).status_code == 200
            first, second = (request.prompt_token_ids for request in w.engine.submitted)
            said = DEMO.tokenizer.encode(CALL)
            assert second[: len(first) + len(said)] == (*first, *said)
            assert "sunny" in DEMO.tokenizer.decode(second)
            wrong = {**result, "tool_call_id": "other"}
            error = error_of(await w.chat(tools=WEATHER, messages=[*USER, answer, wrong]), 400)
            assert error["param"] == "messages[2].tool_call_id"

    run(body)


@pytest.mark.parametrize("stream", [False, True])
def test_several_choices(stream):
    async def body():
        async with world(script=words) as w:
            options = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
            reply = await w.chat(n=3, seed=7, **options)
            assert [request.seed for request in w.engine.submitted] == [7, 8, 9]
            if stream:
                chunks = events(reply)[:-1]
                usage = chunks[-1]["usage"]
                for index in range(3):
                    mine = [c for chunk in chunks for c in chunk["choices"] if c["index"] == index]
                    assert mine[0]["delta"]["role"] == "assistant"
                    assert "".join(choice["delta"].get("content", "") for choice in mine) == "ABCDEFGH"
                    assert [choice["finish_reason"] for choice in mine][-1] == "stop"
            else:
                answer = reply.json()
                usage = answer["usage"]
                assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
                assert {choice["message"]["content"] for choice in answer["choices"]} == {"ABCDEFGH"}
            assert usage["completion_tokens"] == 27
            assert usage["prompt_tokens"] == len(w.engine.submitted[0].prompt_token_ids)

    run(body)


def test_alternatives_and_the_prompt():
    async def body():
        async with world(script=words) as w:
            answer = (await w.chat(logprobs=True, top_logprobs=2, prompt_logprobs=1, return_token_ids=True)).json()
            (choice,) = answer["choices"]
            assert all(len(entry["top_logprobs"]) == 2 for entry in choice["logprobs"]["content"])
            assert choice["token_ids"] == [*WORDS, EOS]
            prompt = list(w.engine.submitted[0].prompt_token_ids)
            assert answer["prompt_token_ids"] == prompt
            assert answer["prompt_logprobs"][0] is None
            assert len(answer["prompt_logprobs"]) == len(prompt)
            stream = events(await w.chat(stream=True, return_token_ids=True))[:-1]
            assert stream[0]["prompt_token_ids"] == prompt
            ids = [id_ for chunk in stream[1:] for id_ in chunk["choices"][0]["token_ids"]]
            assert ids == [*WORDS, EOS]
            named = (await w.chat(logprobs=True, return_tokens_as_token_ids=True)).json()["choices"][0]
            assert named["logprobs"]["content"][0]["token"] == f"token_id:{WORDS[0]}"

    run(body)


def test_origins_of_tokens_and_running_counts():
    async def body():
        async with world(script=words) as w:
            options = {"stream": True, "stream_options": {"include_usage": True}, "return_token_origins": True}
            *chunks, usage = events(await w.chat(**options))[:-1]
            tokens = [token for chunk in chunks for token in chunk["choices"][0].get("token_origins", ())]
            assert "".join(token["text"] for token in tokens) == "ABCDEFGH"
            assert {token["part"] for token in tokens} == {"content"}
            counts = [chunk["speculation"]["num_accepted"] for chunk in chunks]
            assert counts == sorted(counts)
            assert counts[-1] == usage["usage"]["speculation"]["num_accepted"]
            # The model's end has no text, and may be an accepted draft as well.
            assert counts[-1] - sum(token["is_draft"] for token in tokens) in (0, 1)
            plain = events(await w.chat(stream=True))[:-1]
            assert not any("speculation" in chunk for chunk in plain)

    run(body)


def test_a_stop_string_counts_in_reasoning_too():
    async def body():
        async with saying("I think so.</mm:think>Yes") as w:
            fields = {"stop": ["nk"], "chat_template_kwargs": {"thinking_mode": "enabled"}}
            (choice,) = (await w.chat(**fields)).json()["choices"]
            assert choice["message"]["reasoning_content"] == "I thi"
            assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", "nk")

    run(body)
