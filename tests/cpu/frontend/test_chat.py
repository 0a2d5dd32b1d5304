"""Conversations with the bundled model: forced calls are always valid, thinking comes apart, a second turn is cheap."""

from __future__ import annotations

import json

import jsonschema
import pytest

from slipstream.base.errors import RequestError
from slipstream.demo import demo_path
from slipstream.frontend.llm import LLM
from slipstream.text.tokenizer import Tokenizer
from slipstream.text.tools.syntax import NAMESPACE
from slipstream.wire.sampling_params import SamplingParams

TOKENIZER = Tokenizer.load(demo_path())
WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 12},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
        "unit": {"enum": ["C", "F"]},
        "options": {
            "type": "object",
            "properties": {
                "is_exact": {"type": "boolean"},
                "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2},
            },
            "required": ["is_exact"],
        },
    },
    "required": ["city", "days", "unit", "options"],
}
CLOCK = {"type": "object", "properties": {"zone": {"enum": ["UTC", "CET"]}}, "required": ["zone"]}
SCHEMAS = {"weather": WEATHER, "clock": CLOCK}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": schema}} for name, schema in SCHEMAS.items()]
QUESTION = [{"role": "user", "content": "How is the weather in Rome?"}]
NAMED = {"type": "function", "function": {"name": "clock"}}


@pytest.fixture(scope="module", params=["none", "eagle3"])
def llm(request):
    with LLM("demo", drafter=request.param, device="cpu") as one:
        yield one


def check(completion) -> None:
    """Check that an answer is calls and nothing else, and that every call is whole and valid."""
    assert completion.content == ""
    assert completion.finish_reason == "tool_calls"
    assert completion.tool_calls
    for call in completion.tool_calls:
        jsonschema.validate(json.loads(call.arguments), SCHEMAS[call.name])


@pytest.mark.parametrize("mode", ["disabled", "enabled", "adaptive"])
@pytest.mark.parametrize("choice", ["required", NAMED], ids=["required", "named"])
def test_a_forced_call_is_valid(llm, mode, choice):
    params = [SamplingParams(max_tokens=400, temperature=0.5 * place, seed=place) for place in range(3)]
    completions = llm.chat(
        [QUESTION] * 3,
        params,
        tools=TOOLS,
        tool_choice=choice,
        parallel_tool_calls=False,
        chat_template_kwargs={"thinking_mode": mode},
    )
    for completion in completions:
        check(completion)
        assert len(completion.tool_calls) == 1
        assert bool(completion.reasoning) == (mode == "enabled")
        if choice is NAMED:
            assert completion.tool_calls[0].name == "clock"


@pytest.mark.parametrize("mode", ["disabled", "enabled"])
def test_thinking_comes_apart_from_content(llm, mode):
    (completion,) = llm.chat(
        QUESTION, SamplingParams(max_tokens=200, temperature=0), chat_template_kwargs={"thinking_mode": mode}
    )
    assert "think>" not in completion.content + completion.reasoning
    assert bool(completion.reasoning) == (mode == "enabled")
    assert completion.content
    assert completion.tool_calls == ()


def test_a_result_is_answered_and_the_conversation_is_reused(llm):
    greedy = SamplingParams(max_tokens=300, temperature=0)
    (first,) = llm.chat(QUESTION, greedy, tools=TOOLS, tool_choice="required", parallel_tool_calls=False)
    (call,) = first.tool_calls
    called = {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
    history = [
        *QUESTION,
        {"role": "assistant", "content": None, "tool_calls": [called]},
        {"role": "tool", "tool_call_id": call.id, "content": "sunny, 21 degrees"},
    ]
    (second,) = llm.chat(history, greedy, tools=TOOLS, tool_choice="none")
    # The same text, and the same tokens as far as the model spelled its own text as the tokenizer does.
    known, prompt = (*first.prompt_token_ids, *first.token_ids), second.prompt_token_ids
    assert TOKENIZER.decode(prompt, skip_special_tokens=False).startswith(
        TOKENIZER.decode(known, skip_special_tokens=False)
    )
    assert prompt[: len(first.prompt_token_ids)] == first.prompt_token_ids
    num_whole_pages = len(first.prompt_token_ids) // llm.facts.page_size
    assert second.num_prefix_hit_tokens >= num_whole_pages * llm.facts.page_size > 0
    assert second.content


def test_what_is_wrong_is_said_before_anything_runs(llm):
    cases = [
        ({"tools": TOOLS, "tool_choice": "always"}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [{"type": "function"}]}, "tools\\[0\\].function"),
    ]
    for fields, says in cases:
        with pytest.raises(RequestError, match=says):
            llm.chat(QUESTION, **fields)
    unsupported = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}
    parameters = {"type": "object", "properties": {"x": unsupported}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
    with pytest.raises(RequestError, match="uniqueItems"):
        llm.chat(QUESTION, tools=tools, tool_choice="required")
    check(llm.chat(QUESTION, SamplingParams(max_tokens=400), tools=TOOLS, tool_choice="required")[0])


STRICT = [{"type": "function", "function": {**TOOLS[0]["function"], "strict": True}}, TOOLS[1]]


@pytest.mark.parametrize("mode", ["disabled", "enabled"])
def test_with_strict_tools_only_offered_functions_are_called_and_validly(llm, mode):
    params = [SamplingParams(max_tokens=500, temperature=0.6 * place, seed=place) for place in range(4)]
    asked = {"tools": STRICT, "chat_template_kwargs": {"thinking_mode": mode}}
    completions = llm.chat([QUESTION] * 4, params, **asked)
    assert mode == "enabled" or any(completion.tool_calls for completion in completions)
    for completion in completions:
        assert NAMESPACE not in completion.content
        assert completion.finish_reason in ("stop", "tool_calls", "length")
        for call in completion.tool_calls if completion.finish_reason == "tool_calls" else ():
            jsonschema.validate(json.loads(call.arguments), SCHEMAS[call.name])
    one = llm.chat([QUESTION] * 4, params, **asked, parallel_tool_calls=False)
    assert all(completion.text.count("<invoke ") <= 1 for completion in one)


@pytest.mark.parametrize("mode", ["disabled", "enabled", "adaptive"])
def test_without_a_choice_of_calls_none_is_begun(llm, mode):
    params = [SamplingParams(max_tokens=120, temperature=0.6 * place, seed=place) for place in range(4)]
    asked = {"tools": TOOLS, "chat_template_kwargs": {"thinking_mode": mode}}
    would_call = any(completion.tool_calls for completion in llm.chat([QUESTION] * 4, params, **asked))
    assert would_call or mode == "enabled"
    for completion in llm.chat([QUESTION] * 4, params, **asked, tool_choice="none"):
        assert NAMESPACE not in completion.text
        assert completion.tool_calls == ()
        assert completion.content
