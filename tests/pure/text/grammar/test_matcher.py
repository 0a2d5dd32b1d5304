"""The masks of a ladder are those of one token at a time, whatever the drafts; and a failed matcher stays failed."""

from __future__ import annotations

import ctypes
import json
import math
import random

import numpy as np
import pytest
from llguidance import LLParserLimits

from slipstream.base.errors import EngineError
from slipstream.text.grammar import backend, origin
from slipstream.text.grammar.bitmask import ALLOW_ALL, num_words, pack_tokens
from slipstream.text.grammar.compiler import GrammarCompiler
from slipstream.text.grammar.matcher import GrammarFault, GrammarMatcher, MaskPlan
from slipstream.text.grammar.origin import GrammarOrigin
from slipstream.wire.grammar import GrammarSpec
from slipstream.wire.ids import NO_TOKEN
from support.grammar_schemas import draw_answer, draw_drafts, draw_token
from support.grammar_world import (
    allowed_now,
    byte_id,
    end_id,
    grammar_tokenizer,
    ladder,
    letters,
    model_vocab_size,
    spell,
    text_of,
)
from support.grammar_worst import LATE_LIMIT

EVERYTHING = list(range(model_vocab_size()))
PAIRS = GrammarSpec.grammar('start: "<" start ">" | "ab" | "abc"')


@pytest.fixture(scope="module")
def compiler():
    with GrammarCompiler(grammar_tokenizer(), vocab_size=model_vocab_size()) as compiler:
        yield compiler


@pytest.fixture
def pairs(compiler):
    return compiler.compile(PAIRS).start()


def row_alone(grammar, tokens):
    """The oracle: a fresh matcher that takes the tokens one at a time and fills one row."""
    matcher = grammar.start()
    for token in tokens:
        allowed_now(matcher)
        matcher.accept([token])
    return allowed_now(matcher)


def test_each_row_is_the_mask_after_the_drafts_before_it(compiler, pairs):
    grammar = compiler.compile(PAIRS)
    pairs.accept(letters("<"))
    drafts = [*letters("<abc>>"), end_id()]
    num_allowed, rows = ladder(pairs, drafts)
    assert num_allowed == 7
    assert rows == [row_alone(grammar, letters("<") + drafts[:place]) for place in range(7)] + [[end_id()]]
    assert end_id() in rows[6]
    assert not any(end_id() in row for row in rows[:6])


@pytest.mark.parametrize("bad", [NO_TOKEN, letters("x")[0], -7, model_vocab_size(), model_vocab_size() - 1, 10**12])
def test_rows_behind_a_violation_allow_everything_and_are_not_counted(compiler, pairs, bad):
    num_allowed, rows = ladder(pairs, [*letters("<"), bad, *letters("ab")])
    assert num_allowed == 1
    assert rows[:2] == [row_alone(compiler.compile(PAIRS), letters("<")[:count]) for count in (0, 1)]
    assert rows[2:] == [EVERYTHING] * 3


def test_the_end_token_is_a_violation_unless_the_text_is_complete(pairs):
    assert ladder(pairs, [end_id(), *letters("ab")])[0] == 0
    num_allowed, rows = ladder(pairs, [*letters("ab"), end_id(), end_id(), *letters("c")])
    assert num_allowed == 4
    assert rows[2] == sorted([*letters("c"), end_id()])
    assert rows[3:5] == [[end_id()]] * 2
    assert rows[5] == EVERYTHING


def test_filling_changes_nothing(pairs):
    pairs.accept(letters("<ab"))
    before = allowed_now(pairs)
    for drafts in ([*letters("c>"), end_id()], letters("c>>"), [NO_TOKEN], [end_id()], letters("x")):
        ladder(pairs, drafts)
        assert allowed_now(pairs) == before
        assert pairs.num_accepted == 3
    pairs.accept([*letters(">"), end_id()])
    assert pairs.is_terminated


def test_the_answer_ends_once_and_stays_ended(pairs):
    pairs.accept([*letters("abc")])
    assert not pairs.is_terminated
    assert allowed_now(pairs) == [end_id()]
    pairs.accept([end_id()])
    assert pairs.is_terminated
    assert allowed_now(pairs) == [end_id()]
    pairs.accept([end_id()])
    with pytest.raises(GrammarFault, match="after the end of the text"):
        pairs.accept(letters("a"))


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (letters("<x"), "does not continue the text"),
        ([*letters("<ab"), end_id()], "text is not complete"),
        ([*letters("ab"), end_id(), *letters("c")], "after the end"),
        ([NO_TOKEN], f"token {NO_TOKEN} does not"),
        ([model_vocab_size() + 40], "does not continue"),
        ([grammar_tokenizer().control_ids["<tool_call>"]], "does not continue"),
        (letters("abcd"), "does not continue"),
    ],
)
def test_a_token_that_does_not_fit_fails_this_matcher_only(compiler, tokens, message):
    grammar = compiler.compile(PAIRS)
    matcher, other = grammar.start(), grammar.start()
    with pytest.raises(GrammarFault, match=message) as caught:
        matcher.accept(tokens)
    out = np.full((3, num_words(model_vocab_size())), ALLOW_ALL, dtype=np.int32)
    for use in (
        lambda: matcher.fill_masks(letters("<a"), out),
        lambda: matcher.accept(letters("<")),
        lambda: matcher.rollback(0),
        matcher.forced_tokens,
    ):
        with pytest.raises(GrammarFault) as again:
            use()
        assert str(again.value) == str(caught.value)
    assert not out.any()
    other.accept([*letters("<ab>"), end_id()])
    assert other.is_terminated


def test_every_allowed_token_is_accepted_and_no_other_text_is(compiler):
    grammar = compiler.compile(GrammarSpec.regex("(a|b)[0-9]?c"))
    allowed = allowed_now(grammar.start())
    token_bytes = grammar_tokenizer().token_bytes
    assert {token_bytes(token) for token in allowed} >= {b"a", b"b"}
    for token in range(model_vocab_size()):
        matcher = grammar.start()
        if token in allowed:
            matcher.accept([token])
        else:
            with pytest.raises(GrammarFault):
                matcher.accept([token])


def test_rollback_undoes_any_number_of_tokens(compiler):
    grammar = compiler.compile(PAIRS)
    tokens = [*letters("<<abc>>"), end_id(), end_id()]
    for back in range(len(tokens) + 1):
        matcher = grammar.start()
        matcher.accept(tokens)
        matcher.rollback(back)
        assert matcher.num_accepted == len(tokens) - back
        assert matcher.is_terminated is (back < 2)
        if back >= 2:
            assert allowed_now(matcher) == row_alone(grammar, tokens[: len(tokens) - back])
        matcher.accept(tokens[len(tokens) - back :])
        assert matcher.is_terminated
    for wrong in (-1, 2):
        matcher = grammar.start()
        matcher.accept(letters("<"))
        with pytest.raises(GrammarFault, match=f"{wrong} tokens cannot be taken back: 1 were accepted"):
            matcher.rollback(wrong)


def test_control_tokens_are_taken_back_too(compiler):
    call = grammar_tokenizer().control_ids["<tool_call>"]
    grammar = compiler.compile(GrammarSpec.grammar('start: "a" <tool_call> "b" <tool_call>?'))
    tokens = [*letters("a"), call, *letters("b"), call]
    matcher = grammar.start()
    num_allowed, rows = ladder(matcher, tokens)
    assert num_allowed == 4
    assert rows == [row_alone(grammar, tokens[:place]) for place in range(5)]
    matcher.accept(tokens)
    matcher.rollback(3)
    assert allowed_now(matcher) == rows[1] == [call]


def test_forced_tokens_are_the_only_allowed_ones(compiler):
    grammar = compiler.compile(GrammarSpec.json_schema({"const": "so the answer is deep"}))
    matcher = grammar.start()
    forced = matcher.forced_tokens()
    assert text_of(forced) == '"so the answer is deep"'
    num_allowed, rows = ladder(matcher, forced)
    assert num_allowed == len(forced)
    assert rows == [[token] for token in [*forced, end_id()]]
    matcher.accept([*forced, end_id()])
    assert matcher.forced_tokens() == []
    assert compiler.compile(GrammarSpec.regex("a|b")).start().forced_tokens() == []


def test_another_spelling_of_forced_text_is_accepted(compiler):
    matcher = compiler.compile(GrammarSpec.regex("so the answer")).start()
    assert allowed_now(matcher) == spell("so the answer")[:1]
    assert byte_id(ord("s")) not in allowed_now(matcher)
    matcher.accept(letters("so the answer"))
    assert allowed_now(matcher) == [end_id()]


@pytest.mark.parametrize("quality", [0.0, 0.3, 0.9, 1.0])
def test_random_walks_in_ladders_are_walks_of_single_tokens(compiler, quality):
    """At every step, accept part of the allowed drafts and one drawn token, as verification would."""
    grammar = compiler.compile(
        GrammarSpec.json_schema(
            {
                "type": "object",
                "properties": {"name": {"type": "string", "maxLength": 6}, "ages": {"$ref": "#/$defs/list"}},
                "required": ["name", "ages"],
                "$defs": {
                    "list": {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/list"}]}}
                },
            }
        )
    )
    draws = random.Random(quality)
    for _ in range(4):
        matcher, emitted = grammar.start(), []
        while not matcher.is_terminated:
            drafts = draw_drafts(matcher, draws, 7, quality)
            num_allowed, rows = ladder(matcher, drafts)
            for place in range(num_allowed + 1):
                assert rows[place] == row_alone(grammar, emitted + drafts[:place])
            assert rows[num_allowed + 1 :] == [EVERYTHING] * (7 - num_allowed)
            assert num_allowed == 7 or drafts[num_allowed] not in rows[num_allowed]
            num_taken = draws.randint(0, num_allowed)
            run = [*drafts[:num_taken], draw_token(rows[num_taken], draws, len(emitted) > 30)]
            if end_id() in run:
                run = run[: run.index(end_id()) + 1]
            matcher.accept(run)
            emitted += run
            assert len(emitted) < 500


@pytest.mark.parametrize("bad", [NO_TOKEN, letters("x")[0]])
def test_a_drafter_that_is_always_wrong_costs_nothing_but_its_drafts(compiler, bad):
    """Every step still emits one token that fits, and the answer gets to its end."""
    grammar = compiler.compile(GrammarSpec.json_schema({"type": "array", "items": {"type": "integer"}, "maxItems": 4}))
    plain = draw_answer(grammar.start(), random.Random(65))
    matcher, draws, emitted = grammar.start(), random.Random(65), []
    for step in range(len(plain)):
        num_allowed, rows = ladder(matcher, [bad] * 7)
        assert num_allowed == 0
        emitted.append(draw_token(rows[0], draws, step > 40))
        matcher.accept(emitted[-1:])
    assert emitted == plain
    assert matcher.is_terminated


def test_what_the_library_gives_up_on_ends_this_request_and_allows_nothing(compiler):
    """The constraint starts well and passes a limit late; no mask of it may be read after that."""
    matcher = at_late_limit(compiler)
    with pytest.raises(GrammarFault, match="max is"):
        matcher.accept(letters(":{"))
    out = np.full((3, num_words(model_vocab_size())), ALLOW_ALL, dtype=np.int32)
    with pytest.raises(GrammarFault, match="max is"):
        matcher.fill_masks(letters('"p'), out)
    assert not out.any()


def at_late_limit(compiler):
    """A matcher before the place where the answer may run into the library's limit, or pass it by."""
    matcher = compiler.compile(GrammarSpec.json_schema(LATE_LIMIT)).start()
    matcher.accept(letters(json.dumps({"head": LATE_LIMIT["properties"]["head"]["const"]})[:-1] + ',"body"'))
    return matcher


def test_what_the_library_gives_up_on_in_drafts_only_ends_nothing(compiler):
    """The text must not depend on what a drafter proposed."""
    matcher = at_late_limit(compiler)
    before = allowed_now(matcher)
    num_allowed, rows = ladder(matcher, letters(':{"p0'))
    assert num_allowed == 2
    assert rows[0] == before
    assert set(letters("{n")) <= set(rows[1])
    assert rows[2:] == [[]] * 4
    assert allowed_now(matcher) == before
    short = [*letters(":"), *spell("null"), *letters("}"), end_id()]
    assert ladder(matcher, short)[0] == len(short)
    matcher.accept(short)
    assert matcher.is_terminated


class DeadEnd:
    """A library matcher that allows one control token, and takes nothing."""

    def __init__(self, token):
        self.row = pack_tokens([token], model_vocab_size())

    def unsafe_compute_mask_ptr(self, pointer, num_bytes):
        ctypes.memmove(pointer, self.row.ctypes.data, num_bytes)

    def deep_copy(self):
        return self

    def is_error(self):
        return False

    def is_accepting(self):
        return False

    def try_consume_tokens(self, tokens):
        del tokens
        return 0


def dead_end(token, candidates):
    return GrammarMatcher(GrammarOrigin(lambda: DeadEnd(token), DeadEnd(token)), plan(candidates))


def plan(candidates):
    return MaskPlan(
        vocab_size=model_vocab_size(),
        eos_ids=frozenset({end_id()}),
        ends=pack_tokens([end_id()], model_vocab_size()),
        candidates=pack_tokens(candidates, model_vocab_size()),
    )


def test_a_row_that_allows_nothing_is_a_fault():
    with pytest.raises(GrammarFault, match="no token can follow"):
        allowed_now(dead_end(5, [4, 6]))
    assert allowed_now(dead_end(5, [5, 6])) == [5]


def test_behind_a_draft_that_is_allowed_and_still_refused_nothing_is_allowed():
    assert ladder(dead_end(5, [5]), [5, 5]) == (1, [[5], [], []])


def test_rows_of_the_wrong_shape_are_refused(pairs):
    with pytest.raises(EngineError, match="writeable int32"):
        pairs.fill_masks([1], np.zeros((1, num_words(model_vocab_size())), dtype=np.int32))
    strided = np.zeros((2, 2 * num_words(model_vocab_size())), dtype=np.int32)
    assert pairs.fill_masks(letters("<"), strided[:, : num_words(model_vocab_size())]) == 1
    assert not strided[:, num_words(model_vocab_size()) :].any()


WORDS = GrammarSpec.regex(r"(\w{1,20} ){1,30}")


def shrink_tables(monkeypatch, max_states):
    monkeypatch.setattr(backend, "_LIMITS", LLParserLimits(max_lexer_states=max_states, verbose_errors=False))


def test_full_tables_are_replaced_and_nobody_notices(compiler, monkeypatch):
    """Matchers of a grammar share tables that only grow; what fills them must end neither this answer nor others."""
    monkeypatch.setattr(origin, "MAX_RENEWAL_S", math.inf)
    roomy = compiler.compile(WORDS)
    shrink_tables(monkeypatch, 400)
    with GrammarCompiler(grammar_tokenizer(), vocab_size=model_vocab_size()) as small:
        cramped = small.compile(WORDS)
    early = cramped.start()
    early.accept(letters("so "))
    draws = random.Random(7)
    for _ in range(4):
        one, other, emitted = roomy.start(), cramped.start(), []
        while not one.is_terminated and len(emitted) < 60:
            drafts = draw_drafts(one, draws, 5, 0.9)
            expected = ladder(one, drafts)
            assert ladder(other, drafts) == expected
            run = [*drafts[: expected[0]], draws.choice(expected[1][expected[0]])]
            run = run[: run.index(end_id()) + 1] if end_id() in run else run
            one.accept(run)
            other.accept(run)
            emitted += run
        other.rollback(2)
        one.rollback(2)
        assert allowed_now(other) == allowed_now(one)
    assert cramped.generation > 3
    assert roomy.generation == 0
    assert allowed_now(early) == row_alone(roomy, letters("so "))
    early.accept([*letters("it "), end_id()])
    assert early.is_terminated


def test_tables_that_are_slow_to_replace_end_one_request_and_the_next_is_compiled_anew(monkeypatch):
    """Whoever follows a grammar runs in the loop of all requests: nothing slow may happen there."""
    monkeypatch.setattr(origin, "MAX_RENEWAL_S", 0.0)
    shrink_tables(monkeypatch, 400)
    with GrammarCompiler(grammar_tokenizer(), vocab_size=model_vocab_size()) as small:
        cramped = small.compile(WORDS)
        assert small.find(WORDS) is cramped
        draws = random.Random(7)

        def fill_tables():
            for _ in range(200):
                draw_answer(cramped.start(), draws)

        with pytest.raises(GrammarFault, match="tables are full.*send it again"):
            fill_tables()
        assert cramped.generation == 0
        assert small.find(WORDS) is None
        fresh = small.compile(WORDS)
        assert fresh is not cramped
        assert small.find(WORDS) is fresh
        assert small.num_cached == 1


def test_tables_that_are_too_small_for_one_row_end_the_request(compiler, monkeypatch):
    grammar = compiler.compile(WORDS)
    shrink_tables(monkeypatch, 40)
    open_again = grammar._origin._compile_again
    matcher = GrammarMatcher(GrammarOrigin(open_again, open_again()), grammar._plan)
    with pytest.raises(GrammarFault, match="too many states"):
        draw_answer(matcher, random.Random(0))
    assert letters("s")[0] in allowed_now(grammar.start())


@pytest.mark.parametrize(
    "source",
    [
        'start: s "!"\ns: s s s | s s | /[a-z ]/',
        'start: a "!"\na: a a | b\nb: b b | c\nc: c c | /[a-z]/ | /[a-m]/ | /[a-z][a-z]/',
    ],
    ids=["one rule", "three rules"],
)
def test_an_ambiguous_grammar_ends_before_its_rows_take_long(compiler, source):
    """Every request waits while a mask is made: rows of tens of thousands of items took a second each."""
    matcher = compiler.compile(GrammarSpec.grammar(source)).start()

    def write():
        for _ in range(600):
            allowed_now(matcher)
            matcher.accept(letters("a"))

    with pytest.raises(GrammarFault, match="too many items|limit"):
        write()
    assert 10 < matcher.num_accepted < 600
