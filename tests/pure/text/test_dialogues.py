"""Fifty dialogues, recorded as token ids: the bundled template, and one of the shape that the released models have.

A record proves nothing by itself. Each is compared with what the product makes and with the same format written down a
second time (support/chat_formats), which knows who wrote what; tests/cpu/text compares with transformers.
"""

from __future__ import annotations

import copy
import importlib.util
import itertools
import json

import pytest

from slipstream.base.errors import RequestError
from support import chat_formats, dialogues
from support.chat_formats import DEFAULT_MODES, FORMATS
from support.project import ROOT

TEMPLATES = tuple(FORMATS)
NAMES = dialogues.names()
PROCESSORS = {name: dialogues.processor(source) for name, source in dialogues.SOURCES.items()}
CONTROL = set(dialogues.TOKENIZER.control_ids.values())
MODES = (None, "enabled", "disabled", "adaptive")

each = pytest.mark.parametrize(("name", "template"), list(itertools.product(NAMES, TEMPLATES)))


def load_module(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pieces_of(name, template):
    return FORMATS[template](dialogues.dialogue(name))


def recorded(name, template):
    return dialogues.dialogue(name)["records"][template]


def holds_look_alikes(name, template):
    return chat_formats.holds_look_alikes(pieces_of(name, template))


def test_there_are_enough_dialogues_of_every_kind():
    asked = [dialogues.dialogue(name) for name in NAMES]
    assert len(asked) >= 50
    messages = [message for one in asked for message in one["messages"]]
    assert {message["role"] for message in messages} == {"root", "system", "developer", "user", "assistant", "tool"}
    modes = {
        (one.get("template_kwargs", {}).get("thinking_mode"), one.get("add_generation_prompt", True)) for one in asked
    }
    assert modes >= set(itertools.product(MODES, (True, False)))
    assert sum("tools" in one for one in asked) >= 12
    assert sum(len(message.get("tool_calls", [])) > 1 for message in messages) >= 2
    assert sum("reasoning_content" in message for message in messages) >= 6
    assert sum(len(one["messages"]) > 3 for one in asked) >= 12
    assert sum(holds_look_alikes(name, "demo") for name in NAMES) >= 6


@each
def test_the_product_makes_the_record(name, template):
    assert dialogues.record(dialogues.dialogue(name), PROCESSORS[template]) == recorded(name, template)


@each
def test_the_record_is_the_format_written_a_second_time(name, template):
    record, pieces = recorded(name, template), pieces_of(name, template)
    assert "".join(record["text"]) == chat_formats.text_of(pieces)
    assert record["token_ids"] == chat_formats.ids_of(pieces)
    assert record["starts_in"] == chat_formats.starts_in(dialogues.dialogue(name), DEFAULT_MODES[template])


def has_the_form_of_training(asked):
    """Whether a dialogue is one that the recipe of the demo model can render."""
    contents = [message["content"] for message in asked["messages"]]
    roles = {message["role"] for message in asked["messages"]}
    has_text_only = all(isinstance(content, str) and "mm:think>" not in content for content in contents)
    return has_text_only and roles <= {"system", "user", "assistant", "tool"}


def test_the_demos_template_writes_what_the_demo_was_trained_on():
    training = load_module(ROOT / "recipes" / "demo" / "chat_format.py")
    asked = [dialogues.dialogue(name) for name in NAMES]
    asked = [one for one in asked if has_the_form_of_training(one)]
    assert len(asked) >= 30
    for one in asked:
        messages = copy.deepcopy(one["messages"])
        for call in (call for message in messages for call in message.get("tool_calls", [])):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
        mode = chat_formats.thinking_mode(one.get("template_kwargs", {})) or "disabled"
        is_open = one.get("add_generation_prompt", True)
        text = training.render(messages, one.get("tools"), mode if is_open else None)
        assert text == "".join(one["records"]["demo"]["text"])


@each
def test_ids_are_the_text_and_hold_the_control_tokens_of_the_template_alone(name, template):
    record = recorded(name, template)
    text = dialogues.TOKENIZER.decode(record["token_ids"], skip_special_tokens=False)
    assert text == "".join(record["text"])
    found = [id_ for id_ in record["token_ids"] if id_ in CONTROL]
    assert found == chat_formats.control_ids_of(pieces_of(name, template))


@each
def test_what_everybody_said_can_be_read_back_in_order(name, template):
    asked, text, end = dialogues.dialogue(name), "".join(recorded(name, template)["text"]), 0
    for place, message in enumerate(asked["messages"]):
        if template == "family" and message["role"] == "system" and place > 1:
            continue
        for said in sayings(message):
            found = text.find(said, end)
            assert found >= 0, said
            end = found + len(said)


def sayings(message):
    """The texts of a message that a prompt keeps as they are."""
    content = message["content"] or ""
    words = "".join(part["text"] for part in content) if isinstance(content, list) else content
    if message["role"] == "assistant" and "reasoning_content" not in message:
        # Tags in content are read as tags: what stands between them stays.
        words = words.replace("<mm:think>", "</mm:think>")
        return [part.strip("\n") if "</mm:think>" in words else part for part in words.split("</mm:think>")]
    arguments = [json.loads(call["function"]["arguments"]) for call in message.get("tool_calls", [])]
    strings = [value for one in arguments for value in one.values() if isinstance(value, str)]
    return [message.get("reasoning_content", ""), words, *strings]


@pytest.mark.parametrize("name", NAMES)
def test_a_mode_changes_the_end_of_the_demos_prompt_alone(name):
    asked = {key: value for key, value in dialogues.dialogue(name).items() if key != "template_kwargs"}
    closed = dialogues.prepare(asked | {"add_generation_prompt": False}, PROCESSORS["demo"]).prompt_token_ids
    opening = dialogues.TOKENIZER.encode("]~b]ai\n")
    think = dialogues.TOKENIZER.control_ids
    ends = {"enabled": [think["<mm:think>"]], "disabled": [think["</mm:think>"]], "adaptive": []}
    for mode, end in ends.items():
        asked |= {"add_generation_prompt": True, "template_kwargs": {"thinking_mode": mode}}
        assert list(dialogues.prepare(asked, PROCESSORS["demo"]).prompt_token_ids) == [*closed, *opening, *end]


@pytest.mark.parametrize("name", NAMES)
def test_a_later_turn_only_adds_to_the_prompt(name):
    """Nothing said before is rendered otherwise later, so that the pages of a conversation are found again."""
    messages = dialogues.dialogue(name)["messages"]
    cut = next((place for place in range(len(messages) - 1, 0, -1) if messages[place]["role"] == "user"), None)
    asked = dialogues.dialogue(name) | {"add_generation_prompt": False}
    for template in TEMPLATES:
        whole = dialogues.prepare(asked, PROCESSORS[template]).prompt_token_ids
        begun = dialogues.prepare(asked | {"messages": messages[:cut]}, PROCESSORS[template]).prompt_token_ids
        assert whole[: len(begun)] == begun


@pytest.mark.parametrize("name", NAMES)
def test_files_are_as_the_recorder_writes_them(name):
    written = (dialogues.FOLDER / f"{name}.json").read_text(encoding="utf-8")
    assert written == dialogues.file_text(dialogues.dialogue(name))
    assert all(character.isprintable() or character == "\n" for character in written)


FAULTS = {
    "results get a turn each": ("loop.previtem.role != 'tool'", "true"),
    "a turn of results is never closed": ("loop.nextitem.role != 'tool'", "false"),
    "reasoning of earlier turns is dropped": ("message.reasoning_content", "message.nothing"),
    "no bare closing tag": ("</mm:think>' ~ content", "' ~ content"),
    "line breaks beside tags stay": (".strip('\\n')", ""),
    "null members are written": (" if inner is not none", ""),
    "a null item is dropped": ("for inner in value -", "for inner in value if inner is not none -"),
    "the prompt ends with the other tag": ("mode == 'enabled'", "mode == 'disabled'"),
    "the system text is lost": ("'developer'", "'nobody'"),
    "calls are not shown": ("message.tool_calls", "message.nothing"),
    "tools are not shown": ("if tools", "if nothing"),
    "the turn of the assistant has another name": ("]~b]ai\\n", "]~b]assistant\\n"),
}


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_template_is_noticed(fault, template):
    right, wrong = FAULTS[fault]
    if template == "demo":
        right = right.replace(" if inner is", " if value is")
    source = dialogues.SOURCES[template]
    assert right in source
    through = dialogues.processor(source.replace(right, wrong))
    assert any(differs(name, template, through) for name in NAMES)


def differs(name, template, through):
    asked = dialogues.dialogue(name)
    try:
        return dialogues.record(asked, through) != asked["records"][template]
    except RequestError:
        return True


def test_reading_prompts_as_plain_text_would_be_noticed():
    """Users' markers would be control tokens in exactly the dialogues that hold such look-alikes."""
    fooled = set()
    for name, template in itertools.product(NAMES, TEMPLATES):
        record = recorded(name, template)
        if dialogues.TOKENIZER.encode("".join(record["text"])) != record["token_ids"]:
            fooled.add(name)
    assert fooled == {name for name in NAMES if any(holds_look_alikes(name, template) for template in TEMPLATES)}
    assert len(fooled) >= 6
