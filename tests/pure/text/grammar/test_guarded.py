"""The guard's own process: what it tries, and that it never outlives its parent."""

from __future__ import annotations

import subprocess
import sys
import time

import msgspec
import pytest
from llguidance import LLMatcher

from slipstream.text.grammar.backend import Vocabulary, build_tokenizer, read_vocabulary
from slipstream.text.grammar.guard import GUARD_MODULE, GuardReply, GuardStart, read_frame, write_frame
from slipstream.text.grammar.guarded import GreedySpelling, rehearse
from support.grammar_world import grammar_tokenizer
from support.grammar_worst import ENDLESS, FINE


@pytest.fixture(scope="module")
def vocabulary():
    return read_vocabulary(grammar_tokenizer())


def rehearsed(vocabulary, grammar):
    return rehearse(build_tokenizer(vocabulary, GreedySpelling(vocabulary)), grammar, vocabulary.eos_ids)


def test_greedy_spelling_keeps_every_text(vocabulary):
    spelling = GreedySpelling(vocabulary)
    for text in ("", "so the answer", '{"name": 1}', "é😀\x00", "<tool_call>"):
        ids = spelling(text)
        assert b"".join(vocabulary.tokens[id_] for id_ in ids) == text.encode()
        assert not set(ids) & set(vocabulary.control_ids)
    assert len(spelling("deep tags")) < len("deep tags")


def test_bytes_without_a_token_are_left_out():
    tiny = Vocabulary(tokens=(b"a", b"ab", b"", b"<end>"), control_ids=(3,), eos_ids=(3,))
    assert GreedySpelling(tiny)("abxa<end>") == [1, 0]


@pytest.mark.parametrize(
    ("grammar", "error"),
    [
        (FINE, None),
        (LLMatcher.grammar_from_regex(""), None),
        (LLMatcher.grammar_from_regex("one fixed text that leaves no choice at all, for more than a few tokens"), None),
        (LLMatcher.grammar_from_json_schema('{"type": "object"}'), None),
        (LLMatcher.grammar_from_regex("["), "unclosed"),
        (LLMatcher.grammar_from_lark("start: a\na: a"), "no text satisfies it"),
        # Compiles at once; its first or second token is what fails.
        (LLMatcher.grammar_from_regex("a?" * 3000), "too many expressions"),
        (
            LLMatcher.grammar_from_json_schema(
                msgspec.json.encode(
                    {"type": "object", "properties": {f"p{place}": {} for place in range(600)}}
                ).decode()
            ),
            "max is",
        ),
    ],
)
def test_the_first_tokens_are_tried_as_well(vocabulary, grammar, error):
    found = rehearsed(vocabulary, grammar)
    assert found is None if error is None else (found is not None and error in found)


def start_process(vocabulary):
    popen = subprocess.Popen([sys.executable, "-m", GUARD_MODULE], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    write_frame(popen.stdin.fileno(), GuardStart(vocabulary, 1 << 30))
    ready = read_frame(popen.stdout.fileno(), time.monotonic() + 60)
    assert msgspec.msgpack.decode(ready, type=GuardReply).error is None
    return popen


@pytest.mark.parametrize("grammar", [None, ENDLESS], ids=["idle", "busy"])
def test_the_process_ends_with_its_input(vocabulary, grammar):
    with start_process(vocabulary) as popen:
        if grammar is not None:
            write_frame(popen.stdin.fileno(), grammar)
            with pytest.raises(TimeoutError):
                read_frame(popen.stdout.fileno(), time.monotonic() + 0.3)
        popen.stdin.close()
        assert popen.wait(10) == 0


def test_the_process_answers_in_order(vocabulary):
    with start_process(vocabulary) as popen:
        for grammar in (FINE, LLMatcher.grammar_from_regex("("), FINE):
            write_frame(popen.stdin.fileno(), grammar)
        replies = [read_frame(popen.stdout.fileno(), time.monotonic() + 60) for _ in range(3)]
        errors = [msgspec.msgpack.decode(reply, type=GuardReply).error for reply in replies]
        assert [error is None for error in errors] == [True, False, True]
        popen.stdin.close()


def test_a_process_without_a_first_message_just_ends():
    with subprocess.Popen([sys.executable, "-m", GUARD_MODULE], stdin=subprocess.PIPE) as popen:
        popen.stdin.close()
        assert popen.wait(30) == 0
