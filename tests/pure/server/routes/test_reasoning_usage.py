"""Tokens of the reasoning are counted, shown or not, whole and in a stream; other endpoints have none."""

from __future__ import annotations

from support.answer_world import says, tool_text
from support.http_world import events, run, world

THOUGHT = "I think so."
THINKING = {"chat_template_kwargs": {"thinking_mode": "enabled"}}


def test_tokens_of_the_reasoning_are_counted():
    num_thoughts = len(tool_text().tokenizer.encode(THOUGHT))

    async def body():
        async with world(script=says(f"{THOUGHT}</mm:think>Yes"), text=tool_text()) as w:
            streamed = events(await w.chat(**THINKING, stream=True, stream_options={"include_usage": True}))[-2]
            hidden = (await w.chat(**THINKING, include_reasoning=False)).json()
            three = (await w.chat(**THINKING, n=3)).json()
            for answer, num_answers in (((await w.chat(**THINKING)).json(), 1), (streamed, 1), (hidden, 1), (three, 3)):
                details = answer["usage"]["completion_tokens_details"]
                # An answer of the scripted engine begins with its second token.
                assert details["reasoning_tokens"] in (num_thoughts * num_answers, (num_thoughts - 1) * num_answers)
            assert "I think" not in hidden["choices"][0]["message"].get("reasoning_content", "")
            plain = (await w.complete(max_tokens=4)).json()["usage"]["completion_tokens_details"]
            assert plain["reasoning_tokens"] == 0

    run(body)
