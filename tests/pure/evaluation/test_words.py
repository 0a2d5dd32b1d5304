"""From rows to token ids: the template's own text, markers outside of the count of bytes, native or not."""

from __future__ import annotations

import pytest

from slipstream.demo import demo_path, demo_suite_path
from slipstream.evaluation.suite import Dialogue, Problem, Prompt, Text, read_suite
from slipstream.evaluation.words import (
    NUM_BYTES,
    byte_symbols,
    count_bytes,
    encode_chat,
    encode_document,
    encode_needle,
    encode_prompt,
    is_native,
    num_byte_symbols,
)
from slipstream.frontend.processor import TextParts
from support.evaluation_world import PROBE, TEXT, header, needle, user
from support.tiny_text import write_tiny_text

START = TEXT.tokenizer.control_ids["]~!b["]


def written(ids):
    return TEXT.tokenizer.decode(ids, skip_special_tokens=False)


def test_only_the_template_that_the_suite_means_is_native(tmp_path):
    assert is_native(TEXT, header())
    assert not is_native(TEXT, header("another format"))
    bare = TextParts.load(write_tiny_text(tmp_path / "bare", template=None))
    assert not is_native(bare, header())
    refusing = write_tiny_text(tmp_path / "refusing", template="{{ raise_exception('no') }}")
    assert not is_native(TextParts.load(refusing), header())


def test_the_bundled_suite_is_made_for_the_bundled_model():
    assert is_native(TextParts.load(demo_path()), read_suite(demo_suite_path()).header)


def test_a_conversation_is_what_the_template_writes():
    assert written(encode_chat(TEXT, PROBE)) == header().probe_text
    opened = written(encode_prompt(TEXT, Prompt(domain="x", messages=(user("hello"),), thinking_mode="disabled")))
    assert opened.endswith("]~b]ai\n</mm:think>")
    row = Problem(num_steps=1, templates="seen", messages=(user("hello"),), thinking_mode="disabled", expected="1")
    assert written(encode_prompt(TEXT, row)) == opened
    assert encode_document(TEXT, Dialogue(split="test", domain="x", messages=PROBE)) == encode_chat(TEXT, PROBE)


def test_words_of_a_user_are_no_markers():
    assert list(encode_chat(TEXT, [user("[e~[")])).count(TEXT.tokenizer.control_ids["[e~["]) == 2


def test_a_plain_text_begins_with_the_marker_of_a_document():
    ids = encode_document(TEXT, Text(split="test", domain="x", text="the fox"))
    assert ids[0] == START
    assert written(ids[1:]) == "the fox"
    assert encode_document(TEXT, Text(split="test", domain="x", text=written(ids))) == ids
    assert encode_prompt(TEXT, Prompt(domain="x", text="the fox")) == ids


def test_a_question_about_a_text_stands_behind_it():
    text = written(encode_needle(TEXT, needle(), ["one.", "two."]))
    assert "read\n\none. two.\n\nwhat is the word" in text
    assert text.endswith("</mm:think>")


def test_markers_have_no_bytes_but_a_symbol():
    ids = encode_document(TEXT, Text(split="test", domain="x", text="fox é"))
    assert count_bytes(TEXT.tokenizer, ids) == len("fox é".encode())
    symbols = byte_symbols(TEXT.tokenizer, ids)
    assert bytes(symbols[1:]) == "fox é".encode()
    assert NUM_BYTES <= symbols[0] < num_byte_symbols(TEXT.tokenizer)


@pytest.mark.parametrize("text", ["a", "the quick"])
def test_the_first_token_of_a_text_is_given(text):
    ids = TEXT.tokenizer.encode(text)
    given = TEXT.tokenizer.token_bytes(ids[0])
    assert count_bytes(TEXT.tokenizer, ids) == len(text) - len(given)
