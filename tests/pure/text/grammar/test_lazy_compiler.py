"""Nothing is loaded before the first constraint, everything once, and a checkpoint that cannot says so every time."""

from __future__ import annotations

import threading

import pytest

from slipstream.base.errors import CheckpointError, OverloadedError, RequestError, UnsupportedFeature
from slipstream.text.grammar.boundary import ReasoningEnd
from slipstream.text.grammar.compiler import GrammarCompiler
from slipstream.text.grammar.deferred import DeferredMatcher
from slipstream.text.grammar.lazy_compiler import CompilerParts, LazyCompiler, load_parts
from slipstream.text.grammar.matcher import GrammarMatcher
from slipstream.wire.grammar import GrammarSpec
from support.grammar_world import allowed_now, end_id, grammar_tokenizer, letters, marker_id, model_vocab_size
from support.processes import is_alive, wait_until
from support.tiny_text import tiny_folder

SPEC = GrammarSpec.regex("a+")


def make_parts():
    compiler = GrammarCompiler(grammar_tokenizer(), vocab_size=model_vocab_size())
    return CompilerParts(compiler, ReasoningEnd(grammar_tokenizer(), model_vocab_size()))


class Builder:
    """Builds, counts, and waits to be let."""

    def __init__(self, is_held=False):
        self.num_calls = 0
        self.entered, self.release = threading.Event(), threading.Event()
        if not is_held:
            self.release.set()

    def __call__(self):
        self.num_calls += 1
        self.entered.set()
        assert self.release.wait(30)
        return make_parts()


@pytest.fixture
def opened():
    compilers = []
    yield lambda build: compilers.append(LazyCompiler(build)) or compilers[-1]
    for compiler in compilers:
        compiler.close()


def test_nothing_is_built_before_the_first_constraint_and_everything_once(opened):
    builder = Builder()
    compiler = opened(builder)
    assert compiler.find(SPEC) is None
    assert builder.num_calls == 0
    grammar = compiler.compile(SPEC)
    assert compiler.find(SPEC) is grammar
    assert compiler.compile(SPEC) is grammar
    compiler.compile(GrammarSpec.json_object())
    assert builder.num_calls == 1


def test_starting_builds_and_starts_the_process(opened):
    builder = Builder()
    compiler = opened(builder)
    assert compiler.guard_pid is None
    compiler.start()
    pid = compiler.guard_pid
    assert pid is not None
    compiler.compile(SPEC)
    assert (builder.num_calls, compiler.guard_pid) == (1, pid)
    compiler.close()
    compiler.close()
    assert wait_until(lambda: not is_alive(pid))
    with pytest.raises(OverloadedError, match="shutting down"):
        compiler.compile(GrammarSpec.regex("b+"))


def test_looking_never_waits_for_the_building(opened):
    builder = Builder(is_held=True)
    compiler = opened(builder)
    thread = threading.Thread(target=compiler.start)
    thread.start()
    assert builder.entered.wait(30)
    assert compiler.find(SPEC) is None
    builder.release.set()
    thread.join()


def test_closed_while_it_is_built_it_never_starts_a_process(opened):
    builder = Builder(is_held=True)
    compiler, caught = opened(builder), []

    def compile_late():
        try:
            compiler.compile(SPEC)
        except OverloadedError as error:
            caught.append(error)

    thread = threading.Thread(target=compile_late)
    thread.start()
    assert builder.entered.wait(30)
    compiler.close()
    builder.release.set()
    thread.join()
    assert len(caught) == 1
    assert compiler.guard_pid is None


def test_closed_before_it_was_built_it_builds_nothing(opened):
    builder = Builder()
    compiler = opened(builder)
    compiler.close()
    with pytest.raises(OverloadedError):
        compiler.compile(SPEC)
    assert builder.num_calls == 0


def test_where_a_grammar_begins(opened):
    compiler = opened(make_parts)
    grammar = compiler.compile(SPEC)
    at_once, later = compiler.match(grammar, "answer"), compiler.match(grammar, "after_reasoning")
    assert isinstance(at_once, GrammarMatcher)
    assert isinstance(later, DeferredMatcher)
    only_a = allowed_now(at_once)
    assert set(letters("b")) <= set(allowed_now(later)), "reasoning is free"
    later.accept([*letters("b"), marker_id()])
    assert allowed_now(later) == only_a


def test_a_checkpoint_without_a_tokenizer_is_refused_by_name_every_time(opened, tmp_path):
    calls = []

    def build():
        calls.append(1)
        return load_parts(tmp_path, 100, ())

    compiler = opened(build)
    for _ in range(2):
        with pytest.raises(
            UnsupportedFeature, match="not possible with this checkpoint: .*tokenizer.json is missing"
        ) as caught:
            compiler.compile(SPEC)
        assert isinstance(caught.value, RequestError)
        assert caught.value.code == "no_structured_output"
    assert calls == [1]


def test_parts_are_loaded_from_a_checkpoint_with_the_engines_ends():
    folder = tiny_folder()
    parts = load_parts(folder, 400, (7, 9))
    with parts.compiler as compiler:
        assert compiler.vocab_size == 400
        assert parts.end.vocab_size == 400
        matcher = compiler.compile(GrammarSpec.regex("a?")).start()
        matcher.accept([9])
        assert matcher.is_terminated
    with pytest.raises(CheckpointError, match="the model has 10 tokens"):
        load_parts(folder, 10, ())


def test_a_refused_constraint_is_a_request_error_of_its_own(opened):
    compiler = opened(make_parts)
    with pytest.raises(RequestError) as caught:
        compiler.compile(GrammarSpec.regex("("))
    assert caught.value.code == "invalid_grammar"
    assert end_id() in allowed_now(compiler.match(compiler.compile(GrammarSpec.regex("a*")), "answer"))
