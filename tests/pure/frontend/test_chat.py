"""A conversation is settled before the engine sees it: its mode, what its answer starts in, whether it must call."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from slipstream.base.errors import RequestError, UnsupportedFeature
from slipstream.demo import demo_path
from slipstream.frontend.chat import ChatAsk, check_variables, render_kwargs, sampling_for
from slipstream.frontend.processor import Processor, TextParts
from slipstream.text.messages import parse_messages
from slipstream.text.tools.constrain import text_grammar
from slipstream.text.tools.render import render_tool_calls
from slipstream.text.tools.schema import ToolChoice, parse_tools
from slipstream.text.tools.syntax import NAMESPACE
from slipstream.wire.grammar import GrammarSpec
from slipstream.wire.sampling_params import SamplingParams
from support.fake_engine import fake_facts
from support.tiny_text import tiny_folder

TEXT = TextParts.load(demo_path())
TOKENIZER = TEXT.tokenizer
PROCESSOR = Processor(TEXT, fake_facts(vocab_size=TOKENIZER.vocab_size, max_model_len=2048))
USER = parse_messages([{"role": "user", "content": "How is the weather in Rome?"}])
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = parse_tools([{"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}])
JSON = SamplingParams(grammar=GrammarSpec.json_object())
REQUIRED = ToolChoice("required")


def prepare(sampling=None, **ask):
    return PROCESSOR.prepare_chat(ChatAsk(**({"messages": USER} | ask)), sampling or SamplingParams())


def text_of(prepared) -> str:
    return TOKENIZER.decode(prepared.prompt_token_ids, skip_special_tokens=False)


@pytest.mark.parametrize(
    ("kwargs", "starts_in", "ends_with"),
    [
        ({}, "content", "</mm:think>"),
        ({"thinking_mode": "enabled"}, "reasoning", "<mm:think>"),
        ({"enable_thinking": True}, "reasoning", "<mm:think>"),
        ({"thinking": {"type": "enabled"}}, "reasoning", "<mm:think>"),
        ({"thinking_mode": "disabled"}, "content", "</mm:think>"),
        ({"enable_thinking": False}, "content", "</mm:think>"),
        ({"thinking_mode": "adaptive"}, "undecided", "]~b]ai\n"),
    ],
)
def test_thinking_modes_under_every_name(kwargs, starts_in, ends_with):
    prepared = prepare(template_kwargs=kwargs)
    assert prepared.starts_in == starts_in
    assert text_of(prepared).endswith(ends_with)


@pytest.mark.parametrize(
    ("kwargs", "starts_in"),
    [
        ({}, "content"),
        ({"thinking_mode": "adaptive"}, "content"),
        ({"thinking_mode": "enabled"}, "reasoning"),
        ({"enable_thinking": False}, "content"),
    ],
)
@pytest.mark.parametrize("is_call", [False, True])
def test_a_constrained_answer_has_a_certain_start(kwargs, starts_in, is_call):
    choice = {"tools": TOOLS, "tool_choice": REQUIRED} if is_call else {}
    prepared = prepare(None if is_call else JSON, template_kwargs=kwargs, **choice)
    assert prepared.starts_in == starts_in
    request = PROCESSOR.make_request(
        "a", prepared.prompt_token_ids, prepared.sampling, starts_in_reasoning=starts_in == "reasoning"
    )
    assert request.grammar_starts == ("after_reasoning" if starts_in == "reasoning" else "answer")


def test_tags_in_the_conversation_say_nothing_about_the_answer():
    messages = parse_messages([{"role": "user", "content": "Write <mm:think> and </mm:think> <mm:think>"}])
    assert prepare(messages=messages).starts_in == "content"
    assert prepare(messages=messages, template_kwargs={"thinking_mode": "enabled"}).starts_in == "reasoning"


def test_without_a_generation_prompt_the_model_decides():
    assert prepare(add_generation_prompt=False).starts_in == "undecided"
    assert prepare(JSON, add_generation_prompt=False).starts_in == "content"


def test_contradicting_modes_are_refused():
    with pytest.raises(RequestError, match="contradicts itself"):
        prepare(template_kwargs={"thinking_mode": "enabled", "enable_thinking": False})


@pytest.mark.parametrize(
    ("choice", "is_parsed", "has_grammar"),
    [
        (ToolChoice("none"), False, False),
        (ToolChoice("auto"), True, False),
        (REQUIRED, True, True),
        (ToolChoice("named", "weather"), True, True),
    ],
)
def test_what_a_choice_means(choice, is_parsed, has_grammar):
    prepared = prepare(tools=TOOLS, tool_choice=choice)
    assert (prepared.parameters is not None) == is_parsed
    assert (prepared.sampling.grammar is not None) == has_grammar
    assert "weather" in text_of(prepared), "the model sees the tools whatever the choice"


STRICT = parse_tools([{"type": "function", "function": {"name": "weather", "parameters": PARAMETERS, "strict": True}}])


def test_strict_tools_bind_the_calls_that_may_come():
    strict = prepare(tools=STRICT, tool_choice=ToolChoice("auto"))
    assert strict.sampling.grammar not in (None, prepare(tools=STRICT, tool_choice=REQUIRED).sampling.grammar)
    assert prepare(tools=TOOLS, tool_choice=ToolChoice("auto")).sampling.grammar is None
    one = prepare(tools=STRICT, tool_choice=ToolChoice("auto"), parallel_tool_calls=False)
    assert one.sampling.grammar not in (None, strict.sampling.grammar)
    thinking = {"thinking_mode": "enabled"}
    assert prepare(tools=STRICT, tool_choice=ToolChoice("auto"), template_kwargs=thinking).starts_in == "reasoning"


def test_without_a_choice_of_calls_their_marker_is_forbidden():
    """As one token, or by a grammar where there is no token for it; a text with a constraint needs neither."""
    none = ToolChoice("none")
    prepared = prepare(SamplingParams(bad_words=("x",)), tools=TOOLS, tool_choice=none)
    assert prepared.sampling.bad_words == ("x", NAMESPACE)
    assert prepared.starts_in == prepare().starts_in
    request = PROCESSOR.make_request("a", prepared.prompt_token_ids, prepared.sampling)
    assert (TOKENIZER.control_ids[NAMESPACE],) in request.bad_token_ids
    assert prepare(tool_choice=none).sampling == SamplingParams(), "nothing shows the model how to call"
    assert prepare(JSON, tools=TOOLS, tool_choice=none).sampling == JSON
    called = [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}, *USER]
    assert prepare(messages=parse_messages(called)).sampling.bad_words == (NAMESPACE,), "earlier calls show it too"
    ask = ChatAsk(messages=USER, tools=TOOLS, tool_choice=none)
    markerless = SimpleNamespace(control_ids={})
    assert sampling_for(ask, SamplingParams(), markerless).grammar == text_grammar()


def test_the_choice_does_not_change_the_prompt():
    choices = [ToolChoice("none"), ToolChoice("auto"), REQUIRED]
    assert len({prepare(tools=TOOLS, tool_choice=choice).prompt_token_ids for choice in choices}) == 1


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_a_constrained_text_and_calls_contradict_each_other(mode):
    with pytest.raises(RequestError, match="set tool_choice to 'none'.*or drop response_format") as caught:
        prepare(JSON, tools=TOOLS, tool_choice=ToolChoice(mode))
    assert caught.value.param == "tool_choice"
    assert prepare(JSON, tools=TOOLS, tool_choice=ToolChoice("none")).sampling.grammar == JSON.grammar


def test_a_template_that_shows_no_tools_refuses_them():
    text = TextParts.load(tiny_folder())
    with pytest.raises(UnsupportedFeature, match="shows no tools"):
        Processor(text, fake_facts()).prepare_chat(ChatAsk(messages=USER, tools=TOOLS), SamplingParams())


def test_one_call_at_most():
    assert prepare(tools=TOOLS, tool_choice=ToolChoice("auto"), parallel_tool_calls=False).max_calls == 1
    assert prepare(tools=TOOLS, tool_choice=ToolChoice("auto")).max_calls is None
    one = prepare(tools=TOOLS, tool_choice=REQUIRED, parallel_tool_calls=False).sampling.grammar
    assert one != prepare(tools=TOOLS, tool_choice=REQUIRED).sampling.grammar


def test_the_mode_is_told_under_the_names_that_a_template_reads():
    names = frozenset({"thinking_mode", "enable_thinking"})
    assert render_kwargs({"a": 1}, None, names) == {"a": 1}
    assert render_kwargs({"thinking": True}, "enabled", names) == {
        "thinking": True,
        "thinking_mode": "enabled",
        "enable_thinking": True,
    }
    assert render_kwargs({}, "disabled", frozenset({"enable_thinking"})) == {"enable_thinking": False}
    assert render_kwargs({}, "adaptive", names) == {"thinking_mode": "adaptive"}
    assert render_kwargs({}, "enabled", frozenset()) == {}


def test_variables_that_change_nothing_are_refused():
    modes = frozenset({"thinking_mode", "messages"})
    check_variables({"thinking": True, "enable_thinking": True, "thinking_mode": "enabled", "gone": None}, modes)
    check_variables({"messages": []}, frozenset())  # the template says what is reserved
    with pytest.raises(UnsupportedFeature, match="none that a request can set"):
        check_variables({"thinking": True}, frozenset({"messages"}))
    with pytest.raises(UnsupportedFeature, match="enable_thinking, thinking, thinking_mode"):
        check_variables({"foo": False}, modes)


def test_characters_of_tools_and_calls_are_counted():
    plain = ChatAsk(messages=USER)
    assert plain.num_chars >= len(USER[0]["content"])
    assert ChatAsk(messages=USER, tools=TOOLS).num_chars >= plain.num_chars + len("weathercitystring")


def test_a_second_turn_begins_with_the_tokens_of_the_first():
    """The call goes out, comes back in the conversation with its result, and its tokens are the same."""
    ask = {"tools": TOOLS, "tool_choice": REQUIRED}
    first = prepare(**ask)
    answer = TOKENIZER.encode(render_tool_calls([("weather", {"city": "Rome <b>"})]))
    calls = [{"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome <b>"}'}}]
    history = [
        {"role": "user", "content": USER[0]["content"]},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "1", "content": "sunny"},
    ]
    second = prepare(messages=parse_messages(history), **ask)
    known = [*first.prompt_token_ids, *answer, TOKENIZER.eos_token_ids[0]]
    assert list(second.prompt_token_ids[: len(known)]) == known
    assert "<response>sunny</response>" in text_of(second)
