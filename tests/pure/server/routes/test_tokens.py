"""POST /tokenize and /detokenize."""

from __future__ import annotations

import threading

import pytest

from support.http_world import TEXT, USER, error_of, run, world


def test_a_prompt_there_and_back():
    async def body():
        async with world() as w:
            text = "hello ]~b]world é"
            told = (await w.post("/tokenize", {"prompt": text, "return_token_strs": True})).json()
            assert told["tokens"] == TEXT.tokenizer.encode(text)
            assert told["count"] == len(told["tokens"])
            assert told["max_model_len"] == 512
            assert "]~b]" in told["token_strs"]
            assert (await w.post("/detokenize", {"tokens": told["tokens"]})).json() == {"prompt": text}

    run(body)


def test_messages_are_rendered_by_the_template():
    async def body():
        async with world() as w:
            told = (await w.post("/tokenize", {"model": "tiny", "messages": USER, "add_special_tokens": False})).json()
            assert told["tokens"] == TEXT.template.encode(USER)
            assert told["token_strs"] is None
            without = (await w.post("/tokenize", {"messages": USER, "add_generation_prompt": False})).json()
            assert without["tokens"] == TEXT.template.encode(USER, add_generation_prompt=False)

    run(body)


def test_an_empty_text_has_no_tokens():
    async def body():
        async with world() as w:
            assert (await w.post("/tokenize", {"prompt": ""})).json()["tokens"] == []
            assert (await w.post("/detokenize", {"tokens": []})).json() == {"prompt": ""}

    run(body)


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": USER}, "prompt"),
        ("/tokenize", {"messages": USER, "add_special_tokens": True}, "add_special_tokens"),
        ("/tokenize", {"messages": USER, "tools": [1]}, "tools[0]"),
        ("/tokenize", {"prompt": "a", "tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ("/tokenize", {"messages": USER, "chat_template_kwargs": {"foo": 1}}, "chat_template_kwargs"),
        ("/tokenize", {"prompt": ["a"]}, "prompt"),
        ("/tokenize", {"prompt": "a", "surprise": 1}, "surprise"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": [400]}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens"),
        ("/detokenize", {"tokens": "12"}, "tokens"),
        ("/detokenize", {"tokens": [1.0]}, "tokens"),
    ],
)
def test_what_is_wrong_is_named(path, fields, param):
    async def body():
        async with world() as w:
            assert error_of(await w.post(path, fields), 400)["param"] == param
            assert error_of(
                await w.post(path, {"model": "x", "prompt": "a"} if "de" not in path else {"model": "x", "tokens": []}),
                404,
            )

    run(body)


SMALL = {"max_model_len": 8}
LONGEST = TEXT.tokenizer.max_token_bytes


def test_twice_the_context_is_served_and_no_more():
    async def body():
        async with world(facts=SMALL) as w:
            ids = [5] * 16
            text = (await w.post("/detokenize", {"tokens": ids})).json()["prompt"]
            told = (await w.post("/tokenize", {"prompt": text, "return_token_strs": True})).json()
            assert told["tokens"] == ids
            assert len(told["token_strs"]) == 16
            for path, fields, param in (
                ("/detokenize", {"tokens": [5] * 17}, "tokens"),
                ("/tokenize", {"prompt": text + text[:1]}, "prompt"),
                ("/tokenize", {"messages": [{"role": "user", "content": text}]}, "messages"),
            ):
                error = error_of(await w.post(path, fields), 400)
                assert (error["param"], error["code"]) == (param, "context_length_exceeded")
                assert "at most 16 are served" in error["message"]

    run(body)


def test_long_lists_of_ids_are_counted_and_not_read():
    """A million bad items would be a million errors; the count alone decides."""

    async def body():
        async with world(facts=SMALL) as w:
            error = error_of(await w.post("/detokenize", {"tokens": ["bad"] * 17}), 400)
            assert "tokens has 17 tokens" in error["message"]

    run(body)


def test_tools_are_part_of_a_conversation(monkeypatch):
    async def body():
        async with world() as w:
            asked = []
            monkeypatch.setattr(w.llm.processor, "tokenize_chat", lambda ask, **_: asked.append(ask) or (1, 2))
            tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
            assert (await w.post("/tokenize", {"messages": USER, "tools": [tool]})).json()["tokens"] == [1, 2]
            assert (asked[0].tools.names, asked[0].messages) == (("f",), USER)

    run(body)


@pytest.mark.parametrize("field", ["prompt", "messages"])
def test_a_text_that_can_never_fit_is_not_tokenised(monkeypatch, field):
    async def body():
        async with world(facts=SMALL) as w:

            async def refuse(*_):
                raise AssertionError("a thread was taken for a text that can never fit")

            monkeypatch.setattr(w.llm, "work_on_text", refuse)
            text = "x" * (16 * LONGEST + 1)
            fields = {"prompt": text} if field == "prompt" else {"messages": [{"role": "user", "content": text}]}
            error = error_of(await w.post("/tokenize", fields), 400)
            assert (error["param"], error["code"]) == (field, "context_length_exceeded")
            assert f"16 tokens hold {16 * LONGEST} at most" in error["message"]

    run(body)


def test_every_answer_is_made_beside_the_loop(monkeypatch):
    async def body():
        async with world() as w:
            loop_thread, threads = threading.get_ident(), []
            for name in ("token", "decode"):
                work = getattr(w.llm.processor.tokenizer, name)

                def watched(*arguments, work=work, **options):
                    threads.append(threading.get_ident())
                    return work(*arguments, **options)

                monkeypatch.setattr(w.llm.processor.tokenizer, name, watched)
            await w.post("/tokenize", {"prompt": "abc", "return_token_strs": True})
            await w.post("/detokenize", {"tokens": [5]})
            assert len(threads) >= 4
            assert loop_thread not in threads

    run(body)


def test_while_loading_it_is_a_503():
    async def body():
        async with world(ready=False) as w:
            error_of(await w.post("/tokenize", {"prompt": "a"}), 503)

    run(body)
