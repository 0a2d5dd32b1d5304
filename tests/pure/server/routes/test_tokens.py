"""POST /tokenize and /detokenize."""

from __future__ import annotations

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
        ("/tokenize", {"messages": USER, "tools": [1]}, "tools"),
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


def test_while_loading_it_is_a_503():
    async def body():
        async with world(ready=False) as w:
            error_of(await w.post("/tokenize", {"prompt": "a"}), 503)

    run(body)
