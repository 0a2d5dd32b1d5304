"""Compiling never blocks the caller, can be given up, and leaves no thread behind."""

from __future__ import annotations

import asyncio
import random
import threading
from concurrent.futures import CancelledError, wait
from pathlib import Path

import pytest

from slipstream.base.errors import OverloadedError, RequestError
from slipstream.text.grammar.compile_queue import CompileQueue
from slipstream.text.grammar.compiler import GrammarCompiler
from slipstream.wire.grammar import GrammarSpec
from support.grammar_schemas import random_schema
from support.grammar_world import grammar_tokenizer
from support.processes import is_alive, wait_until


class Gate:
    """A compiler whose work waits until it is let through."""

    def __init__(self):
        self.open = threading.Event()
        self.entered = threading.Semaphore(0)
        self.compiled = []

    def find(self, spec):
        del spec

    def compile(self, spec):
        self.entered.release()
        assert self.open.wait(30)
        if spec.text == "bad":
            raise RequestError("no")
        self.compiled.append(spec)
        return spec


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.open.set()


def spec(name):
    return GrammarSpec.regex(name)


def num_system_threads():
    return len(list(Path("/proc/self/task").iterdir()))


def test_two_hundred_constraints_given_up_leave_no_thread_behind():
    tokenizer = grammar_tokenizer()  # training it starts threads of its own library, which stay
    threads, system_threads = threading.active_count(), num_system_threads()
    draws = random.Random(64)
    specs = [GrammarSpec.json_schema({**random_schema(draws), "$comment": str(place)}) for place in range(200)]
    with GrammarCompiler(tokenizer) as compiler:
        queue = CompileQueue(compiler, max_waiting=200)
        futures = []
        for place, item in enumerate(specs):
            futures.append(queue.submit(item))
            if place % 3 == 1:
                futures[draws.randrange(len(futures))].cancel()
        wait(futures[:120])
        pid = compiler.guard.pid
        for future in futures[150:]:
            future.cancel()
        queue.close()
    assert all(future.done() for future in futures)
    finished = [future for future in futures if not future.cancelled()]
    assert len(finished) >= 60
    assert len(futures) - len(finished) >= 60
    assert all(future.exception() is None for future in finished)
    assert queue.num_waiting == 0
    assert pid is not None
    assert not is_alive(pid)
    assert wait_until(lambda: threading.active_count() <= threads)
    assert wait_until(lambda: num_system_threads() <= system_threads)


def test_submitting_returns_before_anything_is_compiled(gate):
    with CompileQueue(gate) as queue:
        future = queue.submit(spec("a"))
        assert gate.entered.acquire(timeout=10)
        assert not future.done()
        assert queue.num_waiting == 1
        gate.open.set()
        assert future.result(10) == spec("a")
        assert wait_until(lambda: queue.num_waiting == 0)


def test_what_waits_can_be_cancelled_and_is_never_compiled(gate):
    with CompileQueue(gate) as queue:
        running, waiting, last = (queue.submit(spec(name)) for name in "abc")
        assert gate.entered.acquire(timeout=10)
        assert waiting.cancel()
        assert not running.cancel()
        assert queue.num_waiting == 2
        gate.open.set()
        assert last.result(10) == spec("c")
        assert running.result(10) == spec("a")
        with pytest.raises(CancelledError):
            waiting.result(10)
    assert gate.compiled == [spec("a"), spec("c")]


def test_a_full_queue_refuses(gate):
    with CompileQueue(gate, max_waiting=2) as queue:
        kept = [queue.submit(spec(name)) for name in "ab"]
        with pytest.raises(OverloadedError, match="2 constraints wait to be compiled, at most 2 may"):
            queue.submit(spec("c"))
        gate.open.set()
        wait(kept, 10)
        assert wait_until(lambda: queue.num_waiting == 0)
        assert queue.submit(spec("c")).result(10) == spec("c")


def test_a_failure_reaches_the_one_who_asked(gate):
    gate.open.set()
    with CompileQueue(gate) as queue:
        bad, good = queue.submit(spec("bad")), queue.submit(spec("good"))
        with pytest.raises(RequestError, match="no"):
            bad.result(10)
        assert good.result(10) == spec("good")


def test_closing_cancels_what_waits_and_refuses_what_comes(gate):
    queue = CompileQueue(gate)
    running, waiting = queue.submit(spec("a")), queue.submit(spec("b"))
    assert gate.entered.acquire(timeout=10)
    closing = threading.Thread(target=queue.close)
    closing.start()
    assert wait_until(waiting.done)
    assert waiting.cancelled()
    gate.open.set()
    closing.join(10)
    assert running.result(0) == spec("a")
    with pytest.raises(OverloadedError, match="shutting down"):
        queue.submit(spec("c"))
    queue.close()


def test_a_known_constraint_is_ready_at_once_even_after_closing():
    with GrammarCompiler(grammar_tokenizer()) as compiler:
        with CompileQueue(compiler) as queue:
            grammar = queue.submit(spec("a+")).result(30)
            assert queue.submit(spec("a+")).result(0) is grammar
        assert queue.submit(spec("a+")).result(0) is grammar


def test_a_loop_goes_on_meanwhile_and_may_give_up(gate):
    async def run():
        with CompileQueue(gate) as queue:
            task = asyncio.ensure_future(asyncio.wrap_future(queue.submit(spec("a"))))
            given_up = asyncio.ensure_future(asyncio.wrap_future(queue.submit(spec("b"))))
            for _ in range(5):
                await asyncio.sleep(0)
            assert not task.done()
            given_up.cancel()
            await asyncio.sleep(0)  # the loop hands the cancellation on in its next turn
            with pytest.raises(asyncio.CancelledError):
                await given_up
            gate.open.set()
            assert await asyncio.wait_for(task, 10) == spec("a")
        assert gate.compiled == [spec("a")]

    asyncio.run(run())


def test_making_ready_comes_first_on_the_same_thread_and_its_fault_is_nobodys(gate):
    order = []

    def start():
        order.append(threading.current_thread().name)
        raise RequestError("not ready")

    gate.start = start
    queue = CompileQueue(gate)
    gate.open.set()
    queue.start()
    assert queue.submit(spec("a")).result(30) == spec("a")
    assert len(order) == 1
    assert order[0].startswith("compile-grammar")
    assert queue.num_waiting == 0, "making ready is no request"
    queue.close()
    queue.start()
    assert len(order) == 1
