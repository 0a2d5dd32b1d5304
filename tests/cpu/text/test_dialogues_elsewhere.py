"""The recorded dialogues against transformers: the template engine and tokenizer that clients of the family know."""

from __future__ import annotations

import copy
import itertools
import json

import pytest
from transformers import PreTrainedTokenizerFast

from slipstream.demo import demo_path
from support import chat_formats, dialogues

REFERENCE = PreTrainedTokenizerFast.from_pretrained(str(demo_path()))
NAMES = dialogues.names()


def rendered(asked, template):
    """What transformers makes of a dialogue; it takes arguments as objects and the mode under one name."""
    messages = copy.deepcopy(asked["messages"])
    for call in (call for message in messages for call in message.get("tool_calls", [])):
        call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    kwargs = asked.get("template_kwargs", {}) | {
        "thinking_mode": chat_formats.thinking_mode(asked.get("template_kwargs", {}))
    }
    return REFERENCE.apply_chat_template(
        messages,
        tools=asked.get("tools"),
        chat_template=dialogues.SOURCES[template],
        add_generation_prompt=asked.get("add_generation_prompt", True),
        tokenize=False,
        **kwargs,
    )


@pytest.mark.parametrize(("name", "template"), list(itertools.product(NAMES, dialogues.SOURCES)))
def test_transformers_renders_the_same_text_and_reads_it_as_the_same_ids(name, template):
    """Ids are the same wherever nobody typed what looks like a control token; there transformers obeys it."""
    asked = dialogues.dialogue(name)
    record = asked["records"][template]
    text = rendered(asked, template)
    assert text == "".join(record["text"])
    ids = REFERENCE(text, add_special_tokens=False)["input_ids"]
    is_fooled = chat_formats.holds_look_alikes(chat_formats.FORMATS[template](asked))
    assert (ids != record["token_ids"]) == is_fooled


def test_few_dialogues_are_left_out():
    same = [
        name
        for name in NAMES
        if REFERENCE("".join(dialogues.dialogue(name)["records"]["demo"]["text"]))["input_ids"]
        == dialogues.dialogue(name)["records"]["demo"]["token_ids"]
    ]
    assert len(same) >= 45
