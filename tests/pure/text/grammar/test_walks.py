"""Answers drawn under masks parse and satisfy their schema, in ladders as one by one."""

from __future__ import annotations

import json
import random

import pytest

from slipstream.text.grammar.compiler import GrammarCompiler
from slipstream.wire.grammar import GrammarSpec
from support.grammar_schemas import draw_answer, draw_drafts, draw_token, is_valid, random_schema
from support.grammar_world import end_id, grammar_tokenizer, ladder, model_vocab_size, text_of


@pytest.fixture(scope="module")
def compiler():
    with GrammarCompiler(grammar_tokenizer(), vocab_size=model_vocab_size()) as compiler:
        yield compiler


def draw_in_ladders(matcher, draws, quality):
    """Return an answer drawn in steps of up to eight tokens; the token after the drafts is drawn from its own row."""
    tokens = []
    while not matcher.is_terminated:
        drafts = draw_drafts(matcher, draws, draws.randint(0, 7), quality)
        num_allowed, rows = ladder(matcher, drafts)
        num_taken = draws.randint(0, num_allowed)
        run = [*drafts[:num_taken], draw_token(rows[num_taken], draws, len(tokens) > 30)]
        run = run[: run.index(end_id()) + 1] if end_id() in run else run
        matcher.accept(run)
        tokens += run
        assert len(tokens) < 600
    return tokens


@pytest.mark.parametrize("seed", range(30))
def test_answers_satisfy_their_schema(compiler, seed):
    draws = random.Random(seed)
    schema = random_schema(draws)
    grammar = compiler.compile(GrammarSpec.json_schema(schema))
    answers = [draw_answer(grammar.start(), draws) for _ in range(3)]
    answers += [draw_in_ladders(grammar.start(), draws, quality) for quality in (0.0, 0.6, 1.0)]
    for answer in answers:
        value = json.loads(text_of(answer))
        assert is_valid(value, schema), (value, schema)


@pytest.mark.parametrize("seed", range(30))
def test_one_walk_has_the_same_masks_in_any_cut(compiler, seed):
    """The same tokens, handed over one by one and in runs of random length, see the same rows."""
    draws = random.Random(1000 + seed)
    grammar = compiler.compile(GrammarSpec.json_schema(random_schema(draws)))
    single = grammar.start()
    tokens, rows = [], []
    while not single.is_terminated:
        rows += ladder(single)[1]
        tokens.append(draw_token(rows[-1], draws, len(tokens) > 40))
        single.accept(tokens[-1:])
    cut = grammar.start()
    here = 0
    while here < len(tokens):
        drafts = tokens[here : here + draws.randint(0, 7)]
        num_allowed, seen = ladder(cut, drafts)
        assert num_allowed == len(drafts)
        assert seen[: len(rows) - here] == rows[here : here + len(seen)]
        length = draws.randint(1, len(drafts) + 1)
        cut.accept(tokens[here : here + length])
        here += length
    assert cut.is_terminated


def test_any_object_can_be_drawn(compiler):
    grammar = compiler.compile(GrammarSpec.json_object())
    for seed in range(5):
        assert isinstance(json.loads(text_of(draw_answer(grammar.start(), random.Random(seed)))), dict)


def test_the_validator_refuses_what_does_not_fit():
    """Without this, the walks could not fail."""
    wrong = [
        ("", {"type": "string", "minLength": 1}),
        ("abcd", {"type": "string", "maxLength": 3}),
        ("ad", {"type": "string", "pattern": "^[a-c]{2,4}$"}),
        (True, {"type": "integer"}),
        (1.5, {"type": "integer"}),
        (41, {"type": "number", "maximum": 40}),
        (0, {"type": "boolean"}),
        (0, {"type": "null"}),
        (1, {"enum": [True, "1"]}),
        ({"a": [1]}, {"const": {"a": [1, 2]}}),
        ([1], {"type": "array", "minItems": 2}),
        ([1, 2, 3], {"type": "array", "maxItems": 2}),
        (["a"], {"type": "array", "items": {"type": "null"}}),
        ([1, 2, 3], {"type": "array", "prefixItems": [{}, {}], "items": False}),
        ({}, {"type": "object", "required": ["a"]}),
        ({"b": 1}, {"type": "object", "properties": {"a": {}}, "additionalProperties": False}),
        ({"a": 1}, {"type": "object", "properties": {"a": {"type": "null"}}}),
        (1, {"anyOf": [{"type": "null"}, {"type": "string"}]}),
    ]
    assert [case for case in wrong if is_valid(*case)] == []
    assert is_valid({"a": [1, "x"]}, {"type": "object", "properties": {"a": {"type": "array", "minItems": 2}}})
