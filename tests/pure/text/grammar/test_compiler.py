"""One compilation per constraint, whoever asks; matchers that share nothing but the result."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from slipstream.base.errors import CheckpointError, OverloadedError, RequestError
from slipstream.text.grammar.compiler import GrammarCompiler
from slipstream.text.grammar.limits import GrammarLimits
from slipstream.wire.grammar import GrammarSpec
from support.grammar_schemas import draw_answer
from support.grammar_world import allowed_now, end_id, grammar_tokenizer, letters, model_vocab_size, text_of
from support.processes import is_alive

OBJECT = GrammarSpec.json_schema({"type": "object", "properties": {"a": {"enum": [1, 22]}}, "required": ["a"]})


@pytest.fixture
def open_compiler():
    opened = []

    def open_compiler(**limits):
        compiler = GrammarCompiler(
            grammar_tokenizer(), vocab_size=model_vocab_size(), limits=GrammarLimits(**limits) if limits else None
        )
        opened.append(compiler)
        return compiler

    yield open_compiler
    for compiler in opened:
        compiler.close()


@pytest.fixture
def trials(monkeypatch):
    """Count what reaches the guard."""

    def count(compiler, seen):
        check = compiler.guard.check

        def counted(grammar):
            seen.append(grammar)
            check(grammar)

        monkeypatch.setattr(compiler.guard, "check", counted)
        return seen

    return count


def test_a_known_constraint_is_not_compiled_again(open_compiler, trials):
    compiler = open_compiler()
    seen = trials(compiler, [])
    assert compiler.find(OBJECT) is None
    first = compiler.compile(OBJECT)
    assert compiler.compile(OBJECT) is first
    assert compiler.find(OBJECT) is first
    assert first.spec == OBJECT
    assert len(seen) == 1


def test_the_least_recently_used_constraint_is_forgotten(open_compiler):
    compiler = open_compiler(max_cached=3)
    specs = [GrammarSpec.regex(f"a{{{count}}}") for count in range(1, 5)]
    kept = [compiler.compile(spec) for spec in specs[:3]]
    compiler.find(specs[0])
    compiler.compile(specs[3])
    assert compiler.num_cached == 3
    assert compiler.find(specs[1]) is None
    assert compiler.find(specs[0]) is kept[0]
    assert compiler.find(specs[2]) is kept[2]
    assert set(allowed_now(kept[1].start())) <= set(range(model_vocab_size()))


def test_threads_that_want_the_same_share_the_work(open_compiler, trials):
    compiler = open_compiler()
    seen = trials(compiler, [])
    barrier = threading.Barrier(8)

    def run(spec):
        barrier.wait()
        try:
            return compiler.compile(spec)
        except RequestError as error:
            return str(error)

    with ThreadPoolExecutor(8) as pool:
        grammars = list(pool.map(run, [OBJECT] * 8))
        assert len(seen) == 1
        errors = list(pool.map(run, [GrammarSpec.regex("(")] * 8))
    assert len(set(map(id, grammars))) == 1
    assert len(set(errors)) == 1
    assert "unclosed group" in errors[0]


def test_a_refused_constraint_is_tried_again_when_asked_again(open_compiler, trials):
    compiler = open_compiler()
    seen = trials(compiler, [])
    for _ in range(2):
        with pytest.raises(RequestError, match="unclosed group"):
            compiler.compile(GrammarSpec.regex("("))
    assert len(seen) == 2
    assert compiler.num_cached == 0


def test_limits_are_checked_before_anything_is_started(open_compiler):
    compiler = open_compiler(max_regex_bytes=3)
    with pytest.raises(RequestError, match="at most 3 are allowed"):
        compiler.compile(GrammarSpec.regex("aaaa"))
    assert compiler.guard.pid is None


@pytest.mark.parametrize(
    "spec",
    [
        GrammarSpec.json_object(),
        OBJECT,
        GrammarSpec.regex("[a-c]{1,9}"),
        GrammarSpec.choice(["a", "ab", "abc"]),
        GrammarSpec.grammar('start: "(" start? ")" | "x"'),
        GrammarSpec.grammar('root ::= "(" root? ")" | "x"'),
        GrammarSpec.structural(
            {"structures": [{"begin": "<f>", "schema": {"type": "null"}, "end": ";"}], "triggers": ["<f"]}
        ),
    ],
    ids=lambda spec: spec.kind,
)
def test_matchers_of_one_grammar_are_independent(open_compiler, spec):
    grammar = open_compiler().compile(spec)
    alone = [draw_answer(grammar.start(), random.Random(seed)) for seed in range(6)]
    assert len({text_of(answer) for answer in alone}) > 1
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda seed: draw_answer(grammar.start(), random.Random(seed)), range(6)))
    assert together == alone


def test_every_thread_may_compile(open_compiler):
    compiler = open_compiler()
    specs = [GrammarSpec.regex(f"[a-z]{{{count}}}[0-9]") for count in range(1, 25)]
    with ThreadPoolExecutor(6) as pool:
        grammars = list(pool.map(compiler.compile, specs))
    for count, grammar in enumerate(grammars, 1):
        matcher = grammar.start()
        matcher.accept(letters("z" * count + "0"))
        assert allowed_now(matcher) == [end_id()]


def test_masks_have_the_models_width(open_compiler):
    compiler = open_compiler()
    assert compiler.vocab_size == model_vocab_size()
    assert compiler.num_words == (model_vocab_size() + 31) // 32
    with pytest.raises(CheckpointError):
        GrammarCompiler(grammar_tokenizer(), vocab_size=12)


def test_a_closed_compiler_keeps_what_it_has():
    with GrammarCompiler(grammar_tokenizer()) as compiler:
        compiler.start()
        pid = compiler.guard.pid
        assert is_alive(pid)
        grammar = compiler.compile(OBJECT)
    assert not is_alive(pid)
    assert compiler.compile(OBJECT) is grammar
    matcher = grammar.start()
    matcher.accept(letters('{"a":22}'))
    with pytest.raises(OverloadedError, match="shutting down"):
        compiler.compile(GrammarSpec.json_object())
