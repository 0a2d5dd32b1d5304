"""A grammar that runs away costs one small process, and the next one is served."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time

import pytest
from llguidance import LLMatcher

from slipstream.base.errors import EngineError, OverloadedError, RequestError
from slipstream.text.grammar import guard as guard_module
from slipstream.text.grammar.backend import read_vocabulary
from slipstream.text.grammar.guard import CompileGuard, read_frame, write_frame
from support.descriptors import many_open_files
from support.grammar_world import grammar_tokenizer
from support.grammar_worst import ENDLESS, FINE, HUNGRY, STACKED, TALL
from support.processes import is_alive, wait_until


@pytest.fixture
def open_guard():
    opened = []

    def open_guard(deadline_s=20.0, max_compile_bytes=1 << 30):
        guard = CompileGuard(
            read_vocabulary(grammar_tokenizer()), deadline_s=deadline_s, max_compile_bytes=max_compile_bytes
        )
        opened.append(guard)
        return guard

    yield open_guard
    for guard in opened:
        guard.close()


def test_a_grammar_passes_or_is_refused_with_the_reason(open_guard):
    guard = open_guard()
    guard.check(FINE)
    pid = guard.pid
    with pytest.raises(RequestError, match=r"(?s)cannot be used: .*unclosed group") as caught:
        guard.check(LLMatcher.grammar_from_regex("a("))
    assert caught.value.code == "invalid_grammar"
    with pytest.raises(RequestError, match="no text satisfies it"):
        guard.check(LLMatcher.grammar_from_regex(r"[^\s\S]"))
    guard.check(FINE)
    assert guard.pid == pid


@pytest.mark.parametrize(
    ("grammar", "limits", "message"),
    [
        (ENDLESS, {"deadline_s": 0.5}, r"takes longer than 0\.5 s to compile"),
        (HUNGRY, {"max_compile_bytes": 1 << 26}, "exhausts memory or the stack"),
        (STACKED, {}, "exhausts memory or the stack"),
        (TALL, {}, "exhausts memory or the stack"),
    ],
    ids=["time", "memory", "stack", "small stack"],
)
def test_running_away_ends_the_process_and_not_this_one(open_guard, grammar, limits, message):
    guard = open_guard(**limits)
    guard.start()
    first = guard.pid
    with pytest.raises(RequestError, match=message) as caught:
        guard.check(grammar)
    assert caught.value.code == "grammar_too_large"
    assert guard.pid is None
    assert not is_alive(first)
    guard.check(FINE)
    assert guard.pid not in (None, first)


@pytest.mark.parametrize("is_noticed", [True, False], ids=["noticed", "unnoticed"])
def test_a_process_that_died_idle_is_replaced(open_guard, monkeypatch, is_noticed):
    """Also when the system does not report its end yet: the grammar that comes next is not to blame."""
    guard = open_guard()
    guard.start()
    first = guard.pid
    os.kill(first, signal.SIGKILL)
    assert wait_until(lambda: not is_alive(first))
    if not is_noticed:
        monkeypatch.setattr(guard._popen, "poll", lambda: None)
    guard.check(FINE)
    assert guard.pid != first


def test_a_program_with_many_open_files_can_still_try_grammars(open_guard):
    with many_open_files():
        guard = open_guard()
        guard.check(FINE)
        guard.close()


def test_threads_take_turns(open_guard):
    guard = open_guard()
    failed = []

    def run(grammar, message):
        try:
            guard.check(grammar)
        except RequestError as error:
            failed.append(message is not None and message in str(error))
        else:
            failed.append(message is None)

    bad = LLMatcher.grammar_from_regex("(")
    jobs = [(FINE, None), (bad, "unclosed")] * 8
    threads = [threading.Thread(target=run, args=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == [True] * len(jobs)


def test_closing_ends_a_trial_in_progress(open_guard):
    guard = open_guard(deadline_s=600, max_compile_bytes=1 << 40)
    guard.start()
    pid = guard.pid
    raised = []

    def run():
        with pytest.raises(OverloadedError, match="shutting down"):
            guard.check(ENDLESS)
        raised.append(True)

    thread = threading.Thread(target=run)
    thread.start()
    assert wait_until(guard._lock.locked)
    closing = threading.Thread(target=guard.close)
    closing.start()
    closing.join(10)
    assert not closing.is_alive()
    thread.join(10)
    assert raised == [True]
    assert not is_alive(pid)


def test_a_closed_guard_starts_nothing(open_guard):
    guard = open_guard()
    guard.check(FINE)
    pid = guard.pid
    guard.close()
    guard.close()
    assert guard.pid is None
    assert not is_alive(pid)
    for use in (guard.start, lambda: guard.check(FINE)):
        with pytest.raises(OverloadedError):
            use()


def test_a_forgotten_guard_takes_its_process_along():
    guard = CompileGuard(read_vocabulary(grammar_tokenizer()), deadline_s=5, max_compile_bytes=1 << 30)
    guard.start()
    pid = guard.pid
    del guard
    gc.collect()
    assert wait_until(lambda: not is_alive(pid))


def test_a_process_that_does_not_start_is_an_engine_fault(open_guard, monkeypatch, capfd):
    monkeypatch.setattr(guard_module, "GUARD_MODULE", "slipstream.text.grammar.no_such_module")
    guard = open_guard()
    with pytest.raises(EngineError, match="did not start"):
        guard.start()
    assert "no_such_module" in capfd.readouterr().err
    assert guard.pid is None


def test_frames_survive_small_pipes_and_end_with_them():
    source, sink = os.pipe()
    text = "é" * 200_000
    writer = threading.Thread(target=write_frame, args=(sink, text))
    writer.start()
    body = read_frame(source, time.monotonic() + 10)
    writer.join()
    assert body is not None
    assert body.endswith(text.encode())
    with pytest.raises(TimeoutError):
        read_frame(source, time.monotonic() + 0.01)
    os.write(sink, b"\x05\x00")
    os.close(sink)
    assert read_frame(source) is None
    os.close(source)
