"""POST /v1/completions: one choice per prompt, all of them or none."""

from __future__ import annotations

import asyncio

import pytest

from support.http_world import TEXT, error_of, events, run, world

IDS = TEXT.tokenizer.encode_plain("ABC")


def test_a_whole_answer():
    async def body():
        async with world() as w:
            answer = (await w.complete(prompt="ABCD", logprobs=0)).json()
            (choice,) = answer["choices"]
            assert (choice["text"], choice["finish_reason"], choice["stop_reason"]) == ("ABCD", "stop", None)
            assert choice["logprobs"]["tokens"] == ["A", "B", "C", "D", "[e~["]
            assert choice["logprobs"]["text_offset"] == [0, 1, 2, 3, 4]
            assert len(choice["logprobs"]["token_logprobs"]) == 5
            assert answer["object"] == "text_completion"
            assert answer["id"].startswith("cmpl-")
            assert answer["usage"]["prompt_tokens"] == 4

    run(body)


def test_sixteen_tokens_unless_asked_otherwise():
    async def body():
        async with world() as w:
            answer = (await w.complete(ignore_eos=True)).json()
            assert answer["usage"]["completion_tokens"] == 16
            assert answer["choices"][0]["finish_reason"] == "length"

    run(body)


@pytest.mark.parametrize(
    ("prompt", "texts"),
    [
        ("ABC", ["ABC"]),
        (IDS, ["ABC"]),
        (["ABC", "D"], ["ABC", "D"]),
        ([IDS, IDS[:1]], ["ABC", "A"]),
    ],
)
def test_prompts_of_every_kind(prompt, texts):
    async def body():
        async with world() as w:
            answer = (await w.complete(prompt=prompt)).json()
            assert [choice["text"] for choice in answer["choices"]] == texts
            assert [choice["index"] for choice in answer["choices"]] == list(range(len(texts)))
            assert answer["usage"]["completion_tokens"] == sum(len(text) + 1 for text in texts)

    run(body)


def test_control_tokens_in_a_prompt_count_as_such():
    async def body():
        async with world() as w:
            await w.complete(prompt="]~b]user", max_tokens=1)
            assert w.engine.submitted[0].prompt_token_ids[0] == TEXT.tokenizer.control_ids["]~b]"]

    run(body)


def test_a_stream_of_several_prompts_says_the_same_as_the_whole():
    async def body():
        async with world() as w:
            fields = {"prompt": ["ABCDEFG", "HI", "the quick"], "logprobs": 0, "max_tokens": 40}
            whole = (await w.complete(**fields)).json()
            stream = events(await w.complete(**fields, stream=True, stream_options={"include_usage": True}))
            assert stream[-1] == "[DONE]"
            *chunks, usage = stream[:-1]
            for index, choice in enumerate(whole["choices"]):
                own = [c["choices"][0] for c in chunks if c["choices"][0]["index"] == index]
                assert "".join(c["text"] for c in own) == choice["text"]
                assert own[-1]["finish_reason"] == choice["finish_reason"]
                assert all(c["finish_reason"] is None for c in own[:-1])
                for name in ("tokens", "text_offset", "token_logprobs"):
                    assert [item for c in own for item in c["logprobs"][name]] == choice["logprobs"][name]
            assert usage["choices"] == []
            assert usage["usage"] == whole["usage"]

    run(body)


@pytest.mark.parametrize(
    ("prompt", "says"),
    [
        ("", "empty"),
        ([], "none of them empty"),
        ([[]], "empty"),
        (["A", 5], "list of strings"),
        (["A", [1]], "list of strings"),
        ([1, True], "list of strings"),
        ([1.5], "list of strings"),
        ({"a": 1}, "list of strings"),
        (5, "list of strings"),
        ([400], "token id 400"),
        ([[1], [400]], "token id 400"),
        (None, "prompt is missing"),
        ("\ud83d", "JSON"),
    ],
)
def test_other_prompts_are_refused(prompt, says):
    async def body():
        async with world() as w:
            content = '{"prompt": "\\ud83d"}' if prompt == "\ud83d" else None
            if content is None:
                reply = await w.complete(prompt=prompt)
            else:
                reply = await w.client.post(
                    "/v1/completions", content=content, headers={"content-type": "application/json"}
                )
            assert says in error_of(reply, 400)["message"]
            await asyncio.sleep(0.01)
            assert w.engine.running == {}

    run(body)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"logprobs": 5}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"echo": True}, "echo"),
        ({"suffix": "x"}, "suffix"),
        ({"best_of": 2}, "best_of"),
        ({"messages": []}, "messages"),
        ({"max_completion_tokens": 5}, "max_completion_tokens"),
    ],
)
def test_what_is_not_served_is_named(fields, param):
    async def body():
        async with world() as w:
            assert error_of(await w.complete(**fields), 400)["param"] == param

    run(body)


def test_more_prompts_than_the_server_ever_takes_are_a_400():
    async def body():
        async with world(max_queue=2) as w:
            error = error_of(await w.complete(prompt=["A"] * 7), 400)
            assert "takes 6 requests at once" in error["message"]

    run(body)


def test_when_one_prompt_finds_no_place_none_runs():
    async def body():
        async with world(step_s=0.01, max_queue=2) as w:
            slow = asyncio.create_task(w.complete(ignore_eos=True, max_tokens=300, prompt=["A", "B", "C"]))
            while w.llm.status.num_streams < 3:
                await asyncio.sleep(0.001)
            error_of(await w.complete(prompt=["A"] * 5), 503)
            assert w.llm.status.num_streams == 3
            slow.cancel()
            await asyncio.gather(slow, return_exceptions=True)

    run(body)
