"""What `LLM` makes of a text is the same with any drafter: stop strings, several answers, log-probabilities, reasoning,
structured output and tool calls, from the bundled model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from slipstream.frontend.llm import LLM, Completion
from slipstream.wire.grammar import GrammarSpec
from slipstream.wire.sampling_params import SamplingParams

DRAFTERS = ["ngram", "eagle3"]
MODES: dict[str, dict[str, Any]] = {"greedy": {"temperature": 0}, "coupled": {"temperature": 0.8, "seed": 11}}
PROMPT = "one, two, three, one, two, three, one, two, three, one,"
QUESTION = [{"role": "user", "content": "How is the weather in Rome?"}]
WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 12}, "days": {"type": "integer", "minimum": 1}},
    "required": ["city", "days"],
}
CLOCK = {"type": "object", "properties": {"zone": {"enum": ["UTC", "CET"]}}, "required": ["zone"]}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": schema}}
    for name, schema in {"weather": WEATHER, "clock": CLOCK}.items()
]
NAMED = {"type": "function", "function": {"name": "weather"}}
NUM_STOPS = 12

Ask = Callable[[LLM, dict[str, Any]], list[Completion]]


@pytest.fixture(scope="module")
def llms() -> Iterator[dict[str, LLM]]:
    made: dict[str, LLM] = {}
    try:
        for drafter in ("none", *DRAFTERS):
            made[drafter] = LLM("demo", drafter=drafter, device="cpu", threads=1)
        yield made
    finally:
        for llm in made.values():
            llm.close()


def generate(llm: LLM, base: dict[str, Any], **wishes: Any) -> Completion:
    return llm.generate(PROMPT, SamplingParams(**{"max_tokens": 40, **base, **wishes}))[0]


def stops(llm: LLM, base: dict[str, Any]) -> list[Completion]:
    """Texts that end at every place of an answer, inside runs and between them."""
    text = generate(llm, base).text
    ends = [text[place : place + 3] for place in range(3, 3 + 7 * NUM_STOPS, 7)]
    params = [
        SamplingParams(max_tokens=40, **base, stop=[end], include_stop_str_in_output=bool(place % 2), logprobs=0)
        for place, end in enumerate(ends)
    ]
    return llm.generate([PROMPT] * NUM_STOPS, params)


def answers(llm: LLM, base: dict[str, Any]) -> list[Completion]:
    params = SamplingParams(max_tokens=24, n=3, **base)
    return llm.generate([PROMPT] * 3, [params.for_choice(index) for index in range(3)])


def logprobs(llm: LLM, base: dict[str, Any]) -> list[Completion]:
    return [generate(llm, base, logprobs=3, prompt_logprobs=3), generate(llm, base, logprobs=0, prompt_logprobs=0)]


def edits(llm: LLM, base: dict[str, Any]) -> list[Completion]:
    word = next(word for word in generate(llm, base).text.split() if word.isalpha() and len(word) > 2)
    return [
        generate(llm, base, bad_words=[word]),
        generate(llm, base, repetition_penalty=1.3, presence_penalty=0.5, frequency_penalty=0.5),
        generate(llm, base, min_tokens=20, stop=["e"]),
    ]


def structured(llm: LLM, base: dict[str, Any]) -> list[Completion]:
    specs = [
        GrammarSpec.json_schema(WEATHER),
        GrammarSpec.regex("(high|low)( and (wide|dry)){1,3}"),
        GrammarSpec.choice(["a long river", "a longer river"]),
    ]
    params = [SamplingParams(max_tokens=120, grammar=spec, **base) for spec in specs]
    return [*llm.generate([PROMPT] * 3, params), *thinking(llm, base, grammar=specs[0], max_tokens=260)]


def thinking(llm: LLM, base: dict[str, Any], **wishes: Any) -> list[Completion]:
    params = SamplingParams(**{"max_tokens": 120, **base, **wishes})
    return llm.chat(QUESTION, params, chat_template_kwargs={"thinking_mode": "enabled"})


def calls(llm: LLM, base: dict[str, Any]) -> list[Completion]:
    params = SamplingParams(max_tokens=300, **base)
    return [
        answer
        for choice, mode in (("auto", "disabled"), ("required", "disabled"), (NAMED, "enabled"))
        for answer in llm.chat(
            QUESTION,
            params,
            tools=TOOLS,
            tool_choice=choice,
            parallel_tool_calls=False,
            chat_template_kwargs={"thinking_mode": mode},
        )
    ]


ASKS: dict[str, Ask] = {one.__name__: one for one in (stops, answers, logprobs, edits, structured, thinking, calls)}


def same(found: Completion, wanted: Completion) -> None:
    for name in ("token_ids", "text", "reasoning", "content", "finish_reason", "stop_reason", "error"):
        assert getattr(found, name) == getattr(wanted, name), name
    assert [(one.name, one.arguments) for one in found.tool_calls] == [
        (one.name, one.arguments) for one in wanted.tool_calls
    ]
    for name in ("logprobs", "prompt_logprobs"):
        assert getattr(found, name) == pytest.approx(getattr(wanted, name), abs=1e-3), name
    for name in ("top_logprobs", "prompt_top_logprobs"):
        values = [[[value for _, value in top] for top in getattr(one, name)] for one in (found, wanted)]
        assert len(values[0]) == len(values[1])
        for mine, theirs in zip(*values, strict=True):
            assert mine == pytest.approx(theirs, abs=1e-3), name


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ASKS)
def test_every_drafter_gives_the_answer_of_none(llms: dict[str, LLM], name: str, mode: str) -> None:
    wanted = ASKS[name](llms["none"], MODES[mode])
    assert {one.error for one in wanted} == {None}
    for drafter in DRAFTERS:
        found = ASKS[name](llms[drafter], MODES[mode])
        assert sum(one.num_draft_tokens for one in found) > 0, drafter
        for mine, theirs in zip(found, wanted, strict=True):
            same(mine, theirs)


def test_what_is_compared_is_there(llms: dict[str, LLM]) -> None:
    """Stop strings end some accepted runs in the middle, reasoning and calls are found, answers differ."""
    llm, base = llms["eagle3"], MODES["coupled"]
    cut = [one for each in MODES.values() for one in stops(llm, each)]
    assert {one.finish_reason for one in cut} == {"stop"}
    assert any(one.num_emitted < one.num_accepted + one.num_verify_steps for one in cut)
    assert len({one.text for one in answers(llm, base)}) > 1
    assert all(one.reasoning and one.content for one in thinking(llm, base, max_tokens=260))
    forced = calls(llm, base)[1:]
    assert all(one.tool_calls and one.finish_reason == "tool_calls" for one in forced)
    assert bool(forced[1].reasoning)
