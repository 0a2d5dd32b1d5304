"""An engine of this program, scripted: pieces join to the answer, the end carries the engine's counts."""

from __future__ import annotations

import contextlib

import pytest

from slipstream.base.errors import RequestError
from slipstream.cli.chat.local import LocalSource
from slipstream.cli.chat.source import Ended, Piece, Settings
from support.http_world import USER, run, world


def test_an_answer_ends_with_the_engines_counts():
    async def body():
        async with world() as here:
            source = LocalSource(here.llm)
            async with contextlib.aclosing(source.answer(USER, Settings(max_tokens=9))) as events:
                found = [event async for event in events]
            asked = await here.chat(max_tokens=9)
            return source.describe(), found, asked.json()

    described, events, answer = run(body)
    assert described == "tiny on cpu in float32, drafter ngram with 3 drafts per step, verification coupled"
    pieces = [event for event in events if isinstance(event, Piece)]
    assert (
        "".join(piece.text for piece in pieces if piece.part == "content") == answer["choices"][0]["message"]["content"]
    )
    assert {piece.is_draft for piece in pieces} == {True, False}
    end = events[-1]
    assert isinstance(end, Ended)
    counts = answer["usage"]["speculation"]
    assert {name: getattr(end, name) for name in counts} == counts
    assert end.num_output_tokens == answer["usage"]["completion_tokens"] == 9


def test_leaving_early_ends_the_request():
    async def body():
        async with world(step_s=0.01) as here:
            source = LocalSource(here.llm)
            async with contextlib.aclosing(source.answer(USER, Settings(max_tokens=400))) as events:
                async for event in events:
                    if isinstance(event, Piece):
                        break
            while here.engine.running:
                await here.fake.receive()
            return here.engine.num_aborts, here.llm.status.num_streams

    assert run(body) == (1, 0)


def test_what_the_engine_refuses_is_an_error_of_the_project():
    async def body():
        async with world() as here:
            events = LocalSource(here.llm).answer(USER, Settings(max_tokens=10**6))
            with pytest.raises(RequestError, match="max_tokens"):
                await anext(events)

    run(body)
