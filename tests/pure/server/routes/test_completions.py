"""POST /v1/completions: n choices per prompt, all of them or none."""

from __future__ import annotations

import asyncio

import pytest
from openai.types import Completion as OpenAICompletion

from slipstream.base.errors import RequestError
from slipstream.server.protocol.responses import MIN_LOGPROB
from slipstream.wire.grammar import GrammarSpec
from slipstream.wire.messages import Outputs, RequestOutput
from support.http_world import TEXT, error_of, events, run, world

IDS = TEXT.tokenizer.encode_plain("ABC")
A, B, C = IDS
LOGPROB_LISTS = ("tokens", "text_offset", "token_logprobs", "top_logprobs")


def joined(chunks: list[dict], index: int) -> dict:
    """Put the chunks of one choice together."""
    own = [chunk["choices"][0] for chunk in chunks if chunk["choices"] and chunk["choices"][0]["index"] == index]
    whole = own[0] | {"text": "".join(one["text"] for one in own)}
    for name in ("finish_reason", "stop_reason"):
        whole[name] = own[-1][name]
        assert all(one[name] is None for one in own[:-1])
    if own[0]["logprobs"] is not None:
        whole["logprobs"] = {name: [x for one in own for x in one["logprobs"][name]] for name in LOGPROB_LISTS}
    if "token_ids" in whole:
        whole["token_ids"] = [id_ for one in own for id_ in one["token_ids"]]
    assert all("prompt_logprobs" not in one and "prompt_token_ids" not in one for one in own[1:])
    return whole


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


@pytest.mark.parametrize(
    "fields",
    [
        {"logprobs": 0},
        {"logprobs": 3},
        {"n": 2, "seed": 5},
        {"n": 2, "echo": True},
        {"n": 2, "echo": True, "logprobs": 2},
        {"echo": True, "logprobs": 1, "prompt_logprobs": 2, "return_token_ids": True},
        {"prompt_logprobs": 0},
        {"return_token_ids": True},
        {"return_token_ids": True, "return_tokens_as_token_ids": True, "logprobs": 1},
        {"max_tokens": 0, "echo": True, "logprobs": 1, "n": 2},
        {"max_tokens": 0, "prompt_logprobs": 1},
        {"stop": ["EF"], "logprobs": 1, "echo": True},
    ],
)
def test_a_stream_says_the_same_as_the_whole(fields):
    async def body():
        async with world() as w:
            asked = {"prompt": ["ABCDEFG", "HI", "the quick"], "max_tokens": 40} | fields
            whole = (await w.complete(**asked)).json()
            stream = events(await w.complete(**asked, stream=True, stream_options={"include_usage": True}))
            assert stream[-1] == "[DONE]"
            *chunks, usage = stream[:-1]
            assert [choice["index"] for choice in whole["choices"]] == list(range(3 * fields.get("n", 1)))
            for choice in whole["choices"]:
                assert joined(chunks, choice["index"]) == choice
            assert usage["choices"] == []
            assert usage["usage"] == whole["usage"]
            assert all(chunk["usage"] is None for chunk in chunks)
            if "echo" not in fields:
                OpenAICompletion.model_validate(whole)

    run(body)


def test_alternatives_are_listed_by_text_with_the_token_itself():
    async def body():
        async with world() as w:
            (choice,) = (await w.complete(prompt="AB", logprobs=2)).json()["choices"]
            assert choice["logprobs"]["top_logprobs"][:2] == [
                {"A": -0.5, "B": -0.125, "C": -0.25},
                {"B": choice["logprobs"]["token_logprobs"][1], "C": -0.125, "D": -0.25},
            ]
            assert w.engine.submitted[0].sampling.logprobs == 2
            (choice,) = (await w.complete(prompt="AB", logprobs=0)).json()["choices"]
            assert choice["logprobs"]["top_logprobs"][0] == {"A": -0.5}

    run(body)


def test_choices_of_every_prompt_come_in_order():
    async def body():
        async with world() as w:
            answer = (await w.complete(prompt=["ABC", "D"], n=3, seed=7)).json()
            assert [choice["text"] for choice in answer["choices"]] == ["ABC"] * 3 + ["D"] * 3
            assert [choice["index"] for choice in answer["choices"]] == list(range(6))
            assert [request.seed for request in w.engine.submitted] == [7, 8, 9, 7, 8, 9]
            assert all(request.sampling.n == 1 for request in w.engine.submitted)
            assert (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]) == (4, 18)

    run(body)


def test_choices_without_a_seed_draw_their_own():
    async def body():
        async with world() as w:
            await w.complete(n=4)
            assert len({request.seed for request in w.engine.submitted}) == 4

    run(body)


def test_every_parameter_reaches_the_engine():
    async def body():
        async with world() as w:
            asked = {
                "repetition_penalty": 1.5, "presence_penalty": 0.5, "frequency_penalty": -0.5, "logit_bias": {"5": 2},
                "allowed_token_ids": [A, B, C], "bad_words": ["x"], "min_tokens": 2, "best_of": 1,
                "guided_choice": ["a"],
            }  # fmt: skip
            assert (await w.complete(**asked)).status_code == 200
            sampling = w.engine.submitted[0].sampling
            taken = (sampling.repetition_penalty, sampling.presence_penalty, sampling.frequency_penalty)
            assert taken == (1.5, 0.5, -0.5)
            assert (sampling.logit_bias, sampling.allowed_token_ids) == (((5, 2.0),), (A, B, C))
            assert (sampling.bad_words, sampling.min_tokens) == (("x",), 2)
            assert sampling.grammar == GrammarSpec.choice(["a"])

    run(body)


@pytest.mark.parametrize(("prompt", "text"), [("AB", "AB"), ([A, B], "AB"), ("]~b]A", "]~b]A")])
def test_an_echo_repeats_the_prompt(prompt, text):
    async def body():
        async with world() as w:
            (choice,) = (await w.complete(prompt=prompt, echo=True, logprobs=1, max_tokens=2)).json()["choices"]
            assert choice["text"].startswith(text)
            logprobs = choice["logprobs"]
            assert logprobs["token_logprobs"][:2] == [None, -0.25]
            assert logprobs["top_logprobs"][0] is None
            assert "".join(logprobs["tokens"][:2]) == text
            assert len(logprobs["tokens"]) == 4
            assert choice.get("prompt_logprobs") is None

    run(body)


def test_a_prompt_is_scored_without_an_answer():
    """Clients that compare continuations ask for no token, and read the log-probabilities of the prompt."""

    async def body():
        async with world() as w:
            reply = (await w.complete(prompt=["ABC", "AB"], echo=True, logprobs=1, max_tokens=0, stop=["A"])).json()
            first, second = reply["choices"]
            assert (first["text"], first["finish_reason"], first["stop_reason"]) == ("ABC", "length", None)
            assert first["logprobs"]["tokens"] == ["A", "B", "C"]
            assert first["logprobs"]["token_logprobs"] == [None, -0.25, -0.5]
            assert first["logprobs"]["top_logprobs"] == [None, {"B": -0.25, "C": -0.125}, {"C": -0.5, "D": -0.125}]
            assert second["logprobs"]["text_offset"] == [0, 1]
            usage = reply["usage"]
            counts = (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"])
            assert counts == (5, 0, 5)
            assert set(usage["speculation"].values()) == {0}

    run(body)


def test_logprobs_of_the_prompt():
    async def body():
        async with world() as w:
            (choice,) = (await w.complete(prompt="AB", prompt_logprobs=3, max_tokens=1)).json()["choices"]
            assert choice["prompt_logprobs"] == [
                None,
                {
                    str(B): {"logprob": -0.375, "rank": 3, "decoded_token": "B"},
                    str(B + 1): {"logprob": -0.125, "rank": 1, "decoded_token": "C"},
                    str(B + 2): {"logprob": -0.25, "rank": 2, "decoded_token": "D"},
                },
            ]
            assert choice["logprobs"] is None
            (choice,) = (await w.complete(prompt="A", prompt_logprobs=0, max_tokens=1)).json()["choices"]
            assert choice["prompt_logprobs"] == [None]

    run(body)


def test_an_impossible_token_of_the_prompt_has_a_finite_logprob():
    async def body():
        async with world() as w:
            asking = asyncio.create_task(w.complete(prompt="AB", echo=True, logprobs=0, max_tokens=1))
            w.fake.engine.step = lambda: None
            while not w.engine.submitted:
                await asyncio.sleep(0.001)
            request = w.engine.submitted[0]
            output = RequestOutput(
                request_id=request.request_id,
                token_ids=(A,),
                logprobs=(-1.0,),
                prompt_logprobs=(float("-inf"),),
                finish_reason="length",
            )
            w.fake.tell(Outputs(outputs=(output,), stats=w.engine.stats))
            (choice,) = (await asking).json()["choices"]
            assert choice["logprobs"]["token_logprobs"] == [None, MIN_LOGPROB, -1.0]

    run(body)


def test_token_ids_are_returned():
    async def body():
        async with world() as w:
            fields = {"return_token_ids": True, "return_tokens_as_token_ids": True, "logprobs": 1, "max_tokens": 2}
            (choice,) = (await w.complete(prompt="AB", **fields)).json()["choices"]
            assert (choice["prompt_token_ids"], choice["token_ids"]) == ([A, B], [A, B])
            assert choice["logprobs"]["tokens"] == [f"token_id:{A}", f"token_id:{B}"]
            assert choice["logprobs"]["top_logprobs"][0] == {f"token_id:{A}": -0.5, f"token_id:{B}": -0.125}
            assert choice["logprobs"]["text_offset"] == [0, 1]

    run(body)


def test_usage_in_every_chunk():
    async def body():
        async with world() as w:
            options = {"include_usage": True, "continuous_usage_stats": True}
            fields = {"prompt": ["ABCDEFG", "HI"], "n": 2, "return_token_ids": True, "stream": True}
            *chunks, last, done = events(await w.complete(**fields, stream_options=options))
            assert done == "[DONE]"
            counts = dict.fromkeys(range(4), 0)
            for chunk in chunks:
                (choice,) = chunk["choices"]
                counts[choice["index"]] += len(choice["token_ids"])
                num_prompt_tokens = 7 if choice["index"] < 2 else 2
                assert chunk["usage"] == {
                    "prompt_tokens": num_prompt_tokens,
                    "completion_tokens": counts[choice["index"]],
                    "total_tokens": num_prompt_tokens + counts[choice["index"]],
                }
            assert last["usage"]["completion_tokens"] == sum(counts.values())
            assert last["usage"]["prompt_tokens"] == 9

    run(body)


@pytest.mark.parametrize("is_stream", [False, True])
def test_many_logprobs_are_written_beside_the_event_loop(is_stream, monkeypatch):
    """The same answer comes from a thread."""

    async def body():
        async with world() as w:
            fields = {"prompt": "ABCDEFGH" * 4, "echo": True, "logprobs": 4, "max_tokens": 3, "stream": is_stream}

            async def ask():
                reply = await w.complete(**fields)
                if not is_stream:
                    return reply.json()["choices"]
                return [joined(events(reply)[:-1], 0)]

            inside = await ask()
            used: list[object] = []
            to_thread = asyncio.to_thread

            async def counted(work):
                used.append(work)
                return await to_thread(work)

            monkeypatch.setattr("slipstream.server.routes.completions._MAX_ENTRIES", 50)
            monkeypatch.setattr("asyncio.to_thread", counted)
            assert await ask() == inside
            assert used

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
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": 21, "echo": True}, "logprobs"),
        ({"logprobs": -1}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"prompt_logprobs": 21}, "prompt_logprobs"),
        ({"echo": 1}, "echo"),
        ({"suffix": "x"}, "suffix"),
        ({"best_of": 2}, "best_of"),
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"n": 10**40}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 0, "logprobs": 1}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"min_tokens": 17}, "min_tokens"),
        ({"logit_bias": {"400": 1}}, "logit_bias"),
        ({"logit_bias": {str(10**17): 1}}, "logit_bias"),
        ({"logit_bias": {str(id_): 1 for id_ in range(10**6)}}, "logit_bias"),
        ({"allowed_token_ids": [400]}, "allowed_token_ids"),
        ({"allowed_token_ids": [10**40]}, "allowed_token_ids"),
        ({"bad_words": ["  "]}, "bad_words"),
        ({"bad_words": ["Q" * 100_000]}, "bad_words"),
        ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_choice"),
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"guided_decoding_backend": "xgrammar"}, "guided_decoding_backend"),
        ({"stream": False, "stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"continuous_usage_stats": True}}, "stream_options"),
        ({"messages": []}, "messages"),
        ({"max_completion_tokens": 5}, "max_completion_tokens"),
    ],
)
def test_what_is_not_served_is_named(fields, param):
    async def body():
        async with world() as w:
            for is_stream in (False, True):
                reply = await w.complete(**({"stream": is_stream} | fields))
                assert error_of(reply, 400)["param"] == param
            assert w.engine.submitted == []

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


@pytest.mark.parametrize(
    ("prompt", "n", "says"), [("A", 7, "n=7"), (["A", "B", "C"], 3, "9 requests"), (["A"] * 4, 2, "8")]
)
def test_more_choices_than_the_server_ever_takes_are_a_400(prompt, n, says):
    async def body():
        async with world(max_queue=2) as w:
            error = error_of(await w.complete(prompt=prompt, n=n), 400)
            assert (error["param"], w.engine.submitted) == ("n", [])
            assert says in error["message"]
            assert "takes 6 requests at once" in error["message"]
            assert (await w.complete(prompt=["A", "B"], n=3)).status_code == 200

    run(body)


@pytest.mark.parametrize("is_stream", [False, True])
def test_when_one_choice_finds_no_place_none_runs(is_stream):
    async def body():
        async with world(step_s=0.01, max_queue=2) as w:
            slow = asyncio.create_task(w.complete(ignore_eos=True, max_tokens=300, prompt=["A", "B", "C"]))
            while w.llm.status.num_streams < 3:
                await asyncio.sleep(0.001)
            error_of(await w.complete(prompt="A", n=5, stream=is_stream), 503)
            assert w.llm.status.num_streams == 3
            assert w.engine.num_aborts == 3
            slow.cancel()
            await asyncio.gather(slow, return_exceptions=True)

    run(body)


@pytest.mark.parametrize("is_stream", [False, True])
def test_when_one_choice_fails_the_others_end(is_stream):
    async def body():
        async with world(step_s=0.005) as w:
            asking = asyncio.create_task(w.complete(ignore_eos=True, max_tokens=300, n=3, stream=is_stream))
            while len(w.engine.submitted) < 3:
                await asyncio.sleep(0.001)
            victim = w.engine.submitted[1].request_id
            del w.engine.running[victim]
            output = RequestOutput(request_id=victim, finish_reason="error", error="its logits were no numbers")
            w.fake.tell(Outputs(outputs=(output,), stats=w.engine.stats))
            reply = await asking
            if is_stream:
                assert "no numbers" in events(reply)[-1]["error"]["message"]
            else:
                assert "no numbers" in error_of(reply, 500)["message"]
            assert w.llm.status.num_streams == 0
            await asyncio.sleep(0.02)
            assert w.engine.running == {}

    run(body)


def test_a_constraint_that_the_engine_refuses_names_its_field(monkeypatch):
    async def body():
        async with world() as w:

            async def refuse(*args, **options):
                raise RequestError("the constraint cannot be used: no", code="invalid_grammar")

            monkeypatch.setattr(w.llm, "open", refuse)
            error = error_of(await w.complete(response_format={"type": "json_object"}), 400)
            assert (error["param"], error["code"]) == ("response_format", "invalid_grammar")

    run(body)
