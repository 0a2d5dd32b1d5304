"""Conversations of an `AsyncLLM`: choices, counts, and how the deltas of an answer are read."""

from __future__ import annotations

import pytest

from slipstream.base.errors import ContextLengthError, OverloadedError, RequestError
from slipstream.frontend.chat import ChatAsk
from slipstream.wire.sampling_params import SamplingParams
from support.http_world import TEXT, run, world

ASK = ChatAsk(messages=[{"role": "user", "content": "A"}])
LONG = SamplingParams(max_tokens=400, ignore_eos=True)


def test_choices_of_a_conversation_are_rendered_once_and_opened_all_or_none():
    async def body():
        async with world(step_s=0.001, max_queue=2) as w:
            sampling = SamplingParams(max_tokens=400, ignore_eos=True, n=3, seed=5)
            opened = await w.llm.open_chat_choices(ASK, sampling)
            assert [request.seed for request in w.engine.submitted] == [5, 6, 7]
            assert len({request.prompt_token_ids for request in w.engine.submitted}) == 1
            with pytest.raises(OverloadedError, match="6 requests"):
                await w.llm.open_chat_choices(ASK, SamplingParams(max_tokens=4, n=4))
            with pytest.raises(RequestError, match="n=7: this server takes 6") as caught:
                await w.llm.open_chat_choices(ASK, SamplingParams(max_tokens=4, n=7))
            assert caught.value.param == "n"
            for generation in opened:
                generation.close()
            with pytest.raises(RequestError):
                await w.llm.open_chat_choices(ASK, SamplingParams(max_tokens=10**6, n=2))
            assert len(w.engine.submitted) == 3

    run(body)


def test_tokens_of_a_conversation_are_counted_as_its_prompt_has_them():
    async def body():
        async with world() as w:
            generation = await w.llm.open_chat(ASK, LONG)
            assert await w.llm.count_chat_tokens(ASK) == len(generation.stream.request.prompt_token_ids)
            generation.close()
            with pytest.raises(ContextLengthError):
                await w.llm.count_chat_tokens(ChatAsk(messages=[{"role": "user", "content": "A" * 10**6}]))

    run(body)


@pytest.mark.parametrize(("mode", "content"), [("adaptive", "soyes"), ("disabled", "so</mm:think>yes")])
def test_a_generation_reads_its_deltas_as_the_conversation_says(mode, content):
    """Undecided, a closing tag that nothing opened is a delimiter; in content it is text like any other."""

    async def body():
        script = TEXT.tokenizer.encode_plain("so</mm:think>yes")
        ask = ChatAsk(messages=ASK.messages, template_kwargs={"thinking_mode": mode})
        async with world(script=lambda request: script) as w:
            generation = await w.llm.open_chat(ask, SamplingParams(max_tokens=len(script)))
            answer = [generation.answer.feed(delta) async for delta in generation]
            assert "".join(delta.content for delta in answer) == content
            plain = await w.llm.open("A", SamplingParams(max_tokens=len(script)))
            answer = [plain.answer.feed(delta) async for delta in plain]
            assert "".join(delta.content for delta in answer) == "so</mm:think>yes"

    run(body)
