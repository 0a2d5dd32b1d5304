"""The grammar begins exactly where reasoning ends, wherever in a step that is."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

from slipstream.base.errors import EngineError
from slipstream.text.grammar.bitmask import ALLOW_ALL, num_words
from slipstream.text.grammar.boundary import REASONING_END, ReasoningEnd
from slipstream.text.grammar.compiler import GrammarCompiler
from slipstream.text.grammar.deferred import DeferredMatcher
from slipstream.text.grammar.matcher import GrammarFault
from slipstream.wire.grammar import GrammarSpec
from slipstream.wire.ids import NO_TOKEN
from support.grammar_schemas import draw_answer, draw_token
from support.grammar_world import (
    allowed_now,
    byte_id,
    end_id,
    grammar_tokenizer,
    ladder,
    letters,
    marker_id,
    model_vocab_size,
    spell,
    text_of,
)

TOKENIZER = grammar_tokenizer()
EVERYTHING = list(range(model_vocab_size()))
THINKING = [token for token in EVERYTHING if token not in TOKENIZER.eos_token_ids]
SPEC = GrammarSpec.json_schema({"type": "array", "items": {"enum": ["a", 12]}, "minItems": 1, "maxItems": 3})
RUN = 8


@pytest.fixture(scope="module")
def grammar():
    with GrammarCompiler(TOKENIZER, vocab_size=model_vocab_size()) as compiler:
        yield compiler.compile(SPEC)


@pytest.fixture(scope="module")
def end():
    return ReasoningEnd(TOKENIZER, model_vocab_size())


@pytest.fixture
def start(grammar, end):
    return lambda: DeferredMatcher(grammar.start(), end)


def row_alone(grammar, tokens):
    """The oracle: find the marker in the bytes; then a plain matcher takes the rest, one token at a time."""
    marker, text = REASONING_END.encode(), b""
    for place, token in enumerate(tokens):
        text += TOKENIZER.token_bytes(token)
        if marker in text:
            assert text.endswith(marker)
            matcher = grammar.start()
            for later in tokens[place + 1 :]:
                allowed_now(matcher)
                matcher.accept([later])
            return allowed_now(matcher)
    heads = {token: text + TOKENIZER.token_bytes(token) for token in THINKING}
    return [token for token, head in heads.items() if marker not in head or head.endswith(marker)]


MARKERS = {"one token": [marker_id()], "letters": letters(REASONING_END), "pieces": spell(REASONING_END)}


@pytest.mark.parametrize("marker", MARKERS.values(), ids=MARKERS)
@pytest.mark.parametrize("num_accepted", range(RUN))
@pytest.mark.parametrize("boundary", range(RUN))
def test_the_boundary_at_every_index_with_rejection_anywhere(grammar, start, marker, boundary, num_accepted):
    """Seven drafts hold the end of reasoning; some are accepted, the next token is the target's own draw."""
    draws = random.Random(boundary * RUN + num_accepted)
    answer = draw_answer(grammar.start(), draws)
    stream = [*letters("thinking")[:boundary], *marker, *answer]
    matcher = start()
    before = len(stream) - len(answer) - RUN  # a long marker reaches the window from the left
    emitted = stream[: max(0, before)]
    matcher.accept(emitted)
    drafts = stream[len(emitted) : len(emitted) + RUN - 1]
    num_allowed, rows = ladder(matcher, drafts)
    assert num_allowed == len(drafts)
    for place, row in enumerate(rows):
        assert row == row_alone(grammar, emitted + drafts[:place])

    num_accepted = min(num_accepted, len(drafts))
    run = [*drafts[:num_accepted], draw_token(rows[num_accepted], draws, is_late=False)]
    run = run[: run.index(end_id()) + 1] if end_id() in run else run
    matcher.accept(run)
    emitted += run
    if not matcher.is_terminated and end_id() not in run:
        assert allowed_now(matcher) == row_alone(grammar, emitted)


@pytest.mark.parametrize("marker", MARKERS.values(), ids=MARKERS)
@pytest.mark.parametrize("seed", range(6))
def test_whole_answers_in_steps_of_eight(grammar, start, marker, seed):
    """A target that thinks, ends, and answers; drafters of every quality. The rows are the oracle's in every step."""
    draws = random.Random(seed)
    thought = [*letters("is it < or </mm? " * draws.randrange(3)), *letters("yes"), *marker]
    matcher, emitted = start(), []
    while not matcher.is_terminated:
        ahead = thought[len(emitted) : len(emitted) + draws.randrange(RUN)]
        probe = list(ahead)
        while len(probe) < RUN - 1 and len(emitted) + len(probe) >= len(thought) and end_id() not in probe:
            probe.append(draw_token(row_alone(grammar, emitted + probe), draws, is_late=False))
        if probe and draws.random() < 0.5:
            probe[draws.randrange(len(probe))] = draws.choice([NO_TOKEN, *letters("!z")])
        num_allowed, rows = ladder(matcher, probe)
        for place in range(num_allowed + 1):
            assert rows[place] == row_alone(grammar, emitted + probe[:place])
        assert rows[num_allowed + 1 :] == [EVERYTHING] * (len(probe) - num_allowed)
        num_true = next(
            (i for i, (a, b) in enumerate(zip(probe, thought[len(emitted) :], strict=False)) if a != b), None
        )
        num_taken = draws.randint(0, num_allowed if num_true is None else min(num_true, num_allowed))
        place = len(emitted) + num_taken
        own = thought[place] if place < len(thought) else draw_token(rows[num_taken], draws, len(emitted) > 60)
        assert own in rows[num_taken]
        run = [*probe[:num_taken], own]
        run = run[: run.index(end_id()) + 1] if end_id() in run else run
        matcher.accept(run)
        emitted += run
        assert matcher.has_begun is (len(emitted) >= len(thought))
    assert emitted[: len(thought)] == thought
    value = json.loads(text_of(emitted[len(thought) :]))
    assert 1 <= len(value) <= 3
    assert all(item in ("a", 12) for item in value)


def test_a_drafter_that_is_always_wrong_still_gets_there(grammar, start):
    stream = [*letters("so"), *spell(REASONING_END), *draw_answer(grammar.start(), random.Random(1))]
    matcher = start()
    for place, token in enumerate(stream):
        num_allowed, rows = ladder(matcher, [NO_TOKEN, *letters("zzz")])
        assert num_allowed == 0
        assert rows[0] == row_alone(grammar, stream[:place])
        matcher.accept([token])
    assert matcher.is_terminated


def test_reasoning_is_free(start):
    matcher = start()
    free = [*letters("]{["), *spell("so the answer"), model_vocab_size() - 1]
    num_allowed, rows = ladder(matcher, free)
    assert num_allowed == len(free)
    assert rows == [THINKING] * len(rows)
    matcher.accept(free)
    assert not matcher.is_terminated
    assert not matcher.has_begun
    assert matcher.forced_tokens() == []


def test_an_answer_does_not_end_while_reasoning(start):
    """It would be an answer without what was asked for."""
    num_allowed, rows = ladder(start(), [*letters("so"), end_id(), *letters("x")])
    assert num_allowed == 2
    assert end_id() not in rows[2]
    assert rows[3:] == [EVERYTHING] * 2


def test_a_missing_draft_ends_the_ladder_while_reasoning(start):
    num_allowed, rows = ladder(start(), [*letters("a"), NO_TOKEN, marker_id(), *letters("x")])
    assert num_allowed == 1
    assert rows[2:] == [EVERYTHING] * 3


def test_a_token_that_runs_over_the_marker_is_refused_in_drafts_and_output(start):
    overrun = next(id_ for id_ in range(TOKENIZER.vocab_size) if TOKENIZER.token_bytes(id_) == b">{")
    matcher = start()
    matcher.accept(letters(REASONING_END[:-1]))
    num_allowed, rows = ladder(matcher, [overrun, *letters("[")])
    assert num_allowed == 0
    assert rows[0] == [token for token in THINKING if TOKENIZER.token_bytes(token)[:1] != b">" or token == byte_id(62)]
    assert rows[1:] == [EVERYTHING] * 2
    with pytest.raises(GrammarFault, match=f"token {overrun} cannot come where reasoning ends") as caught:
        matcher.accept([overrun])
    out = np.full((1, num_words(model_vocab_size())), ALLOW_ALL, dtype=np.int32)
    for use in (lambda: matcher.fill_masks((), out), lambda: matcher.accept([1]), lambda: matcher.rollback(0)):
        with pytest.raises(GrammarFault) as again:
            use()
        assert str(again.value) == str(caught.value)
    assert not out.any()


@pytest.mark.parametrize("token", [NO_TOKEN, model_vocab_size()])
def test_ids_that_no_model_emits_are_refused(start, token):
    with pytest.raises(GrammarFault, match=f"token {token} cannot come"):
        start().accept([token])


def test_a_second_marker_is_bound_by_the_grammar(start):
    matcher = start()
    num_allowed, rows = ladder(matcher, [marker_id(), marker_id(), *letters("[")])
    assert num_allowed == 1
    assert marker_id() not in rows[1]
    matcher.accept([marker_id()])
    with pytest.raises(GrammarFault, match="does not continue the text"):
        matcher.accept([marker_id()])


def test_the_part_after_the_marker_must_fit(start):
    with pytest.raises(GrammarFault, match="does not continue the text"):
        start().accept([*letters("so"), marker_id(), *letters("[x")])


@pytest.mark.parametrize("marker", MARKERS.values(), ids=MARKERS)
def test_rollback_crosses_the_boundary_both_ways(grammar, start, marker):
    stream = [*letters("so"), *marker, *letters('["a",12]'), end_id()]
    for back in range(len(stream) + 1):
        matcher = start()
        matcher.accept(stream)
        matcher.rollback(back)
        left = stream[: len(stream) - back]
        assert matcher.has_begun is (len(left) >= 2 + len(marker))
        assert matcher.is_terminated is (back == 0)
        if back:
            assert allowed_now(matcher) == row_alone(grammar, left)
        matcher.accept(stream[len(left) :])
        assert matcher.is_terminated
    matcher = start()
    matcher.accept(stream)
    with pytest.raises(GrammarFault, match="were accepted"):
        matcher.rollback(len(stream) + 1)


def test_filling_changes_nothing_on_either_side(grammar, start):
    matcher = start()
    matcher.accept(letters("so </mm:thin"))
    for drafts in (letters("k>[12]"), letters("kind"), [marker_id(), *letters("[")], letters('k>["a"')):
        before = allowed_now(matcher)
        ladder(matcher, drafts)
        assert allowed_now(matcher) == before
    matcher.accept(letters("k>[1"))
    assert allowed_now(matcher) == row_alone(grammar, letters("x</mm:think>[1"))


def test_forced_tokens_come_from_the_grammar(end):
    with GrammarCompiler(TOKENIZER, vocab_size=model_vocab_size()) as compiler:
        forced_grammar = compiler.compile(GrammarSpec.choice(["so the answer is"]))
    matcher = DeferredMatcher(forced_grammar.start(), end)
    assert matcher.forced_tokens() == []
    matcher.accept([marker_id()])
    assert matcher.forced_tokens() == spell("so the answer is")


def test_rows_of_the_wrong_shape_are_refused(start):
    with pytest.raises(EngineError, match="writeable int32"):
        start().fill_masks([1], np.zeros((1, num_words(model_vocab_size())), dtype=np.int32))
