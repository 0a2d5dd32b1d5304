"""Constrained requests wait for their grammars and for nothing else, and leave nothing behind however they end."""

from __future__ import annotations

import threading

import msgspec
import pytest

from slipstream.base.errors import EngineError, OverloadedError, RequestError
from slipstream.engine.core import EngineCore
from slipstream.engine.grammars import GrammarIntake
from slipstream.runner.grammar_registry import GrammarRegistry
from slipstream.wire.grammar import GrammarSpec
from support.fake_runner import EngineLoop, accept_randomly, expected_stream, make_request
from support.table_grammar import TableCompiler, TableMatcher

FREE_TABLE = {None: tuple(range(97)), **{token: tuple(range(97)) for token in range(97)}}
SLOW = GrammarSpec.regex("slow")
QUICK = GrammarSpec.regex("quick")
BAD = GrammarSpec.regex("bad")
PANIC = GrammarSpec.regex("panic")


def constrained(name, spec, *, prompt=(3, 4, 5), max_tokens=6):
    request = make_request(name, prompt, max_tokens=max_tokens, seed=len(name))
    return msgspec.structs.replace(request, sampling=msgspec.structs.replace(request.sampling, grammar=spec))


class Rig:
    """An engine core over the scripted device, with a compiler that compiles when it is let."""

    def __init__(self, *, overlap=False, held=(SLOW,)):
        loop = EngineLoop(is_overlapped=overlap, accept=accept_randomly(0))
        self.compiler = TableCompiler(lambda: TableMatcher(FREE_TABLE, 97), held=held)
        self.registry = GrammarRegistry()
        self.scheduler = loop.scheduler
        self.core = EngineCore(
            loop.scheduler, loop.runner, overlap=overlap, grammars=GrammarIntake(self.compiler, self.registry)
        )
        self.news = []

    def turn(self):
        self.core.wait(30)
        news = self.core.turn()
        self.news += news
        return news

    def finish(self):
        for _ in range(500):
            if not self.core.has_work:
                return
            self.turn()
        raise AssertionError("the engine does not come to rest")

    def tokens(self, name):
        return tuple(token for output in self.news if output.request_id == name for token in output.token_ids)

    def kinds(self, name):
        return [
            "accepted" if output.is_accepted else output.finish_reason or "tokens"
            for output in self.news
            if output.request_id == name
        ]


@pytest.fixture(params=[False, True], ids=["plain", "overlap"])
def rig(request):
    rig = Rig(overlap=request.param)
    yield rig
    rig.core.close()


def test_a_constrained_request_is_accepted_once_and_then_runs(rig):
    request = constrained("quick", QUICK)
    assert rig.core.submit(request) is None
    assert rig.core.has_work
    assert rig.core.request_ids == ("quick",)
    rig.finish()
    assert rig.kinds("quick")[0] == "accepted"
    assert rig.kinds("quick").count("accepted") == 1
    assert rig.kinds("quick")[-1] == "length"
    assert rig.tokens("quick") == expected_stream(request)[0]
    assert len(rig.registry) == 0, "its grammar went with it"


def test_a_slow_compilation_delays_nobody(rig):
    """By order of events: everybody else has ended while the grammar is still being compiled."""
    others = [make_request(f"free-{index}", (5, 6, index), max_tokens=9, seed=index) for index in range(4)]
    rig.core.submit(others[0])
    rig.core.submit(constrained("slow", SLOW))
    for other in others[1:]:
        rig.core.submit(other)
    assert rig.compiler.entered.acquire(timeout=30)
    while rig.core.can_turn:
        rig.turn()
    for other in others:
        assert rig.tokens(other.request_id) == expected_stream(other)[0]
    assert rig.kinds("slow") == []
    assert rig.core.has_work
    assert not rig.core.can_turn, "nothing to do but to wait"
    rig.compiler.release.set()
    rig.finish()
    assert rig.kinds("slow")[0] == "accepted"
    assert rig.kinds("slow")[-1] == "length"


def test_waiting_ends_when_the_compilation_does(rig):
    rig.core.submit(constrained("slow", SLOW))
    assert rig.compiler.entered.acquire(timeout=30)
    rig.core.wait(0.01)
    assert not rig.core.can_turn
    waiter = threading.Thread(target=rig.core.wait, args=(300.0,))
    waiter.start()
    rig.compiler.release.set()
    waiter.join(30)
    assert not waiter.is_alive(), "it slept on"
    assert rig.core.can_turn


def test_an_abort_while_compiling_ends_the_request_at_once(rig):
    rig.core.submit(constrained("slow", SLOW))
    assert rig.compiler.entered.acquire(timeout=30)
    rig.core.submit(constrained("behind", QUICK))
    for name in ("behind", "slow"):
        ended = rig.core.abort(name)
        assert (ended.request_id, ended.finish_reason) == (name, "abort")
        assert rig.core.abort(name) is None
    assert not rig.core.has_work
    assert rig.core.request_ids == ()
    rig.compiler.release.set()
    rig.core.submit(constrained("next", GrammarSpec.regex("next")))
    rig.finish()
    assert QUICK not in rig.compiler.compiled, "one that still waited is never compiled"
    assert {output.request_id for output in rig.news} == {"next"}
    assert len(rig.registry) == 0


def test_a_compilation_that_was_given_up_does_not_keep_an_idle_loop_awake(rig):
    rig.core.submit(constrained("slow", SLOW))
    assert rig.compiler.entered.acquire(timeout=30)
    rig.core.abort("slow")
    rig.compiler.release.set()
    rig.core.submit(constrained("later", QUICK))
    rig.finish()
    rig.core.wake.reset()
    assert not rig.core.wake.wait(0)
    assert not rig.core.can_turn


def test_an_abort_while_it_runs_drops_the_grammar(rig):
    rig.core.submit(constrained("quick", QUICK, max_tokens=60))
    while not rig.tokens("quick"):
        rig.turn()
    assert "quick" in rig.registry
    assert rig.core.abort("quick").finish_reason == "abort"
    assert len(rig.registry) == 0
    rig.finish()
    assert len(rig.registry) == 0


def test_a_refused_constraint_is_one_error_with_its_kind(rig):
    other = make_request("other", (5, 6), max_tokens=9)
    rig.core.submit(other)
    rig.core.submit(constrained("bad", BAD))
    rig.finish()
    (refusal,) = [output for output in rig.news if output.request_id == "bad"]
    assert (refusal.finish_reason, refusal.error_kind, refusal.error_code) == (
        "error",
        "RequestError",
        "invalid_grammar",
    )
    assert "cannot be used" in refusal.error
    assert not refusal.is_accepted
    assert rig.tokens("other") == expected_stream(other)[0]
    assert len(rig.registry) == 0


def test_a_panic_in_the_compiler_is_the_end_of_one_request(rig):
    rig.core.submit(constrained("panic", PANIC))
    rig.core.submit(constrained("quick", QUICK))
    rig.finish()
    (refusal,) = [output for output in rig.news if output.request_id == "panic"]
    assert refusal.error_kind == "EngineError"
    assert "could not be compiled: Panic: index out of bounds" in refusal.error
    assert rig.kinds("quick")[-1] == "length"


def test_what_could_never_run_is_not_compiled(rig):
    answer = rig.core.submit(constrained("big", QUICK, prompt=tuple(range(90)) * 20))
    assert (answer.finish_reason, answer.error_kind) == ("error", "ContextLengthError")
    empty = rig.core.submit(constrained("empty", QUICK, prompt=()))
    assert empty.error_kind == "RequestError"
    assert rig.compiler.compiled == []
    assert not rig.core.has_work


def test_an_id_is_in_flight_while_its_grammar_is_compiled(rig):
    rig.core.submit(constrained("slow", SLOW))
    for again in (constrained("slow", QUICK), make_request("slow", (1, 2))):
        assert "in flight" in rig.core.submit(again).error
    rig.compiler.release.set()
    rig.finish()
    assert rig.kinds("slow").count("accepted") == 1
    rig.news.clear()
    rig.core.submit(make_request("slow", (1, 2)))
    assert "in flight" in rig.core.submit(constrained("slow", QUICK)).error
    rig.finish()
    assert rig.kinds("slow")[-1] == "length"


def test_requests_that_compile_are_counted_as_waiting(rig):
    assert rig.core.stats().num_waiting == 0
    rig.core.submit(constrained("slow", SLOW))
    rig.core.submit(constrained("behind", QUICK))
    assert rig.core.stats().num_waiting == 2
    rig.compiler.release.set()
    rig.finish()
    assert rig.core.stats().num_waiting == 0


def test_too_many_are_turned_away_as_overload(monkeypatch):
    monkeypatch.setattr(
        "slipstream.text.grammar.compile_queue.CompileQueue.__init__.__kwdefaults__", {"max_waiting": 2}
    )
    rig = Rig()
    assert rig.core.submit(constrained("slow", SLOW)) is None
    assert rig.core.submit(constrained("second", QUICK)) is None
    refusal = rig.core.submit(constrained("third", BAD))
    assert refusal.error_kind == OverloadedError.__name__
    assert refusal.error_code is None
    same = [constrained(f"same-{place}", QUICK) for place in range(9)]
    assert [rig.core.submit(one) for one in same] == [None] * 9, "a grammar takes one place, whoever waits for it"
    rig.compiler.release.set()
    rig.finish()
    assert {output.request_id for output in rig.news} == {"slow", "second", *(one.request_id for one in same)}
    assert rig.compiler.compiled == [SLOW, QUICK]
    rig.core.close()


def test_one_of_several_that_wait_for_a_grammar_may_leave(rig):
    names = ["first", "second", "third"]
    for name in names:
        rig.core.submit(constrained(name, SLOW))
    assert rig.compiler.entered.acquire(timeout=30)
    assert rig.core.abort("first").finish_reason == "abort"
    assert rig.core.request_ids == ("second", "third")
    rig.compiler.release.set()
    rig.finish()
    assert {name: rig.kinds(name)[:1] for name in names} == {"first": [], "second": ["accepted"], "third": ["accepted"]}
    assert rig.compiler.compiled == [SLOW]
    assert len(rig.registry) == 0


def test_a_grammar_that_everybody_left_is_compiled_for_who_comes_next(rig):
    rig.core.submit(constrained("held", SLOW))
    assert rig.compiler.entered.acquire(timeout=30)
    for name in ("first", "second"):
        rig.core.submit(constrained(name, QUICK))
    for name in ("first", "second"):
        rig.core.abort(name)
    rig.core.submit(constrained("next", QUICK))
    rig.compiler.release.set()
    rig.finish()
    assert rig.kinds("next")[0] == "accepted"
    assert rig.compiler.compiled == [SLOW, QUICK]


def test_a_refusal_reaches_everybody_who_waits(rig):
    rig.core.submit(constrained("held", SLOW))
    for name in ("first", "second"):
        rig.core.submit(constrained(name, BAD))
    rig.compiler.release.set()
    rig.finish()
    assert rig.kinds("first") == rig.kinds("second") == ["error"]


def test_closing_gives_up_what_compiles_and_ends_thread_and_compiler():
    threads = threading.active_count()
    rig = Rig()
    rig.core.submit(constrained("slow", SLOW))
    rig.core.submit(constrained("behind", QUICK))
    assert rig.compiler.entered.acquire(timeout=30)
    rig.core.close()
    rig.core.close()
    assert rig.compiler.num_closes == 2
    assert not rig.core.has_work
    assert rig.compiler.compiled in ([], [SLOW])
    assert threading.active_count() == threads
    late = rig.core.submit(constrained("late", QUICK))
    assert late.error_kind == "OverloadedError"


def test_making_ready_does_not_wait():
    rig = Rig()
    entered, release = threading.Event(), threading.Event()

    def start():
        entered.set()
        assert release.wait(30)

    rig.compiler.start = start
    rig.core.prepare()
    assert entered.wait(30)
    assert not rig.core.has_work
    request = make_request("free", (5, 6))
    rig.core.submit(request)
    rig.finish()
    assert rig.tokens("free") == expected_stream(request)[0]
    release.set()
    rig.core.close()


def test_an_engine_without_a_compiler_refuses_constraints_by_name():
    loop = EngineLoop(is_overlapped=False, accept=accept_randomly(0))
    core = EngineCore(loop.scheduler, loop.runner, overlap=False)
    answer = core.submit(constrained("quick", QUICK))
    assert (answer.error_kind, answer.error_code) == ("UnsupportedFeature", "no_structured_output")
    assert core.wake is None
    core.prepare()
    core.wait(30)
    assert not core.has_work


@pytest.mark.parametrize("error", [RequestError("a"), OverloadedError("b"), EngineError("c")])
def test_errors_of_the_project_keep_their_class(error):
    rig = Rig()

    def refuse(spec):
        raise error

    rig.compiler.compile = refuse
    rig.core.submit(constrained("r", QUICK))
    rig.finish()
    assert [output.error_kind for output in rig.news] == [type(error).__name__]
    rig.core.close()
