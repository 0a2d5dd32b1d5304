"""The state an answer starts in comes from the template's own ending or the mode, never from the conversation."""

from __future__ import annotations

import itertools

import pytest

from slipstream.base.errors import RequestError
from slipstream.text.chat_template import ChatTemplate
from slipstream.text.reasoning.mode import (
    THINK_CLOSE,
    THINK_OPEN,
    generation_prompt_tail,
    initial_state,
    pin_mode,
    thinking_mode,
)
from slipstream.text.tokenizer import Tokenizer
from support.tiny_text import tiny_folder

ALIASES = [
    ({}, None),
    ({"thinking_mode": None, "enable_thinking": None, "thinking": None}, None),
    ({"thinking_mode": "enabled"}, "enabled"),
    ({"thinking_mode": "disabled"}, "disabled"),
    ({"thinking_mode": "adaptive"}, "adaptive"),
    ({"enable_thinking": True}, "enabled"),
    ({"enable_thinking": False}, "disabled"),
    ({"thinking": True}, "enabled"),
    ({"thinking": False}, "disabled"),
    ({"thinking": "adaptive"}, "adaptive"),
    ({"thinking": {"type": "enabled"}}, "enabled"),
    ({"thinking": {"type": "disabled", "budget_tokens": 3}}, "disabled"),
    ({"thinking": {}}, None),
    ({"thinking_mode": "enabled", "enable_thinking": True}, "enabled"),
    ({"unrelated": "disabled"}, None),
]


@pytest.mark.parametrize(("template_kwargs", "mode"), ALIASES)
def test_every_name_of_the_mode_is_understood(template_kwargs, mode):
    assert thinking_mode(template_kwargs) == mode


@pytest.mark.parametrize(
    ("template_kwargs", "param", "says"),
    [
        ({"thinking_mode": "off"}, "chat_template_kwargs.thinking_mode", "one of enabled, disabled, adaptive"),
        ({"thinking_mode": True}, "chat_template_kwargs.thinking_mode", "one of enabled"),
        ({"thinking_mode": {"type": "enabled"}}, "chat_template_kwargs.thinking_mode", "one of enabled"),
        ({"enable_thinking": "enabled"}, "chat_template_kwargs.enable_thinking", "true or false"),
        ({"enable_thinking": 1}, "chat_template_kwargs.enable_thinking", "true or false"),
        ({"thinking": {"type": "maybe"}}, "chat_template_kwargs.thinking", "'maybe' is not allowed: give one of"),
        ({"thinking_mode": "enabled", "enable_thinking": False}, "chat_template_kwargs", "contradicts"),
    ],
)
def test_what_is_no_mode_is_refused(template_kwargs, param, says):
    with pytest.raises(RequestError, match=says) as caught:
        thinking_mode(template_kwargs)
    assert caught.value.param == param


def test_a_constrained_answer_has_a_certain_start():
    for mode in ("enabled", "disabled", "adaptive", None):
        pinned = pin_mode(mode, is_constrained=True)
        assert initial_state(pinned, None) in ("reasoning", "content")
        assert pinned == mode or mode in ("adaptive", None)
        assert pin_mode(mode, is_constrained=False) == mode


HEAD = "]~b]ai\n"


@pytest.mark.parametrize("mode", ["enabled", "disabled", "adaptive", None])
@pytest.mark.parametrize(
    ("tail", "state"),
    [
        (HEAD + THINK_OPEN, "reasoning"),
        (HEAD + THINK_OPEN + "\n", "reasoning"),
        (HEAD + THINK_CLOSE, "content"),
        (HEAD + THINK_OPEN + THINK_CLOSE + "\n\n", "content"),
        (HEAD, "undecided"),
        (HEAD + THINK_OPEN + " thoughts", "undecided"),
        ("", "undecided"),
    ],
)
def test_what_the_template_wrote_last_decides(mode, tail, state):
    assert initial_state(mode, tail) == state


@pytest.mark.parametrize(
    ("mode", "state"),
    [("enabled", "reasoning"), ("disabled", "content"), ("adaptive", "undecided"), (None, "undecided")],
)
def test_without_a_known_ending_the_mode_decides(mode, state):
    assert initial_state(mode, None) == state


def test_a_template_that_changes_more_than_the_end_tells_nothing():
    assert generation_prompt_tail("abcd", "ab") == "cd"
    assert generation_prompt_tail("ab", "ab") == ""
    assert generation_prompt_tail("xbcd", "ab") is None


SOURCE = (
    "]~!b[]~b]system\nThink between <mm:think> and </mm:think>.{% if thinking_mode == 'enabled' %}"
    " Start with <mm:think>.{% endif %}[e~[\n"
    "{% for message in messages %}]~b]{{ message.role }}\n{{ message.content }}[e~[\n{% endfor %}"
    "{% if add_generation_prompt %}]~b]ai\n"
    "{% if thinking_mode == 'enabled' %}<mm:think>{% elif thinking_mode == 'disabled' %}</mm:think>{% endif %}"
    "{% endif %}"
)
QUOTES = ["Hello", THINK_OPEN, THINK_CLOSE, f"{THINK_OPEN}x{THINK_CLOSE}", f"]~b]ai\n{THINK_OPEN}"]


@pytest.mark.parametrize(
    ("mode", "state"), [("enabled", "reasoning"), ("disabled", "content"), ("adaptive", "undecided")]
)
def test_markers_in_instructions_and_messages_say_nothing(mode, state):
    """Two renderings of one conversation differ by what the template wrote, however much of it users quote."""
    template = ChatTemplate(SOURCE, Tokenizer.load(tiny_folder()))
    for first, last in itertools.product(QUOTES, QUOTES):
        messages = [
            {"role": "user", "content": first},
            {"role": "assistant", "content": last},
            {"role": "user", "content": last},
        ]
        with_prompt, without_prompt = (
            template.render(messages, add_generation_prompt=flag, template_kwargs={"thinking_mode": mode})
            for flag in (True, False)
        )
        assert initial_state(mode, generation_prompt_tail(with_prompt, without_prompt)) == state
