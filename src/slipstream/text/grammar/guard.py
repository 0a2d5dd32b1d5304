"""Try a grammar in a process of its own before it enters this one.

A short schema can cost minutes and gigabytes, or overflow the stack, inside a library call that nothing can
interrupt. So every grammar is first compiled, and driven a few tokens far, where running away costs one small
process. What passes is compiled again in this process: the same deterministic work, known to be bounded.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import threading
import time
import weakref

import msgspec

from slipstream.base.errors import EngineError, OverloadedError, RequestError
from slipstream.text.grammar.backend import Vocabulary

GUARD_MODULE = "slipstream.text.grammar.guarded"
_START_DEADLINE_S = 60.0
_HEAD_BYTES = 4


class GuardStart(msgspec.Struct, frozen=True):
    """The first message to the process."""

    vocabulary: Vocabulary
    max_compile_bytes: int


class GuardReply(msgspec.Struct, frozen=True):
    """The answer to a grammar: why it is not usable, or None. The first answer says that the process is ready."""

    error: str | None = None


def write_frame(descriptor: int, value: msgspec.Struct | str) -> None:
    """Write one message: four bytes of length, then msgpack."""
    body = msgspec.msgpack.encode(value)
    rest = memoryview(len(body).to_bytes(_HEAD_BYTES, "little") + body)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def read_frame(descriptor: int, deadline: float | None = None) -> bytes | None:
    """Return the body of the next message, or None at the end of the stream.

    Args:
        descriptor: a pipe.
        deadline: on the monotonic clock, in seconds; None waits for ever.

    Raises:
        TimeoutError: the message was not complete by then.
    """
    head = _read_exactly(descriptor, _HEAD_BYTES, deadline)
    return None if head is None else _read_exactly(descriptor, int.from_bytes(head, "little"), deadline)


def _read_exactly(descriptor: int, count: int, deadline: float | None) -> bytes | None:
    parts = b""
    while len(parts) < count:
        if deadline is not None:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not _is_readable(descriptor, left_s):
                raise TimeoutError
        part = os.read(descriptor, count - len(parts))
        if not part:
            return None
        parts += part
    return parts


def _is_readable(descriptor: int, timeout_s: float) -> bool:
    # Not `select`, which takes no descriptor from 1024 on: a program around the engine may hold many files.
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


class CompileGuard:
    """A process that grammars are tried in; started at the first one, replaced after a grammar that broke it.

    Args:
        vocabulary: tokens by id.
        deadline_s: longest trial, in seconds.
        max_compile_bytes: most memory that a trial may add.
    """

    def __init__(self, vocabulary: Vocabulary, *, deadline_s: float, max_compile_bytes: int) -> None:
        self._start = GuardStart(vocabulary, max_compile_bytes)
        self._deadline_s = deadline_s
        self._lock = threading.Lock()
        self._popen: subprocess.Popen[bytes] | None = None
        self._reap: weakref.finalize | None = None
        self._is_closed = False

    @property
    def pid(self) -> int | None:
        """Process id while a process runs."""
        popen = self._popen
        return None if popen is None else popen.pid

    def check(self, grammar: str) -> None:
        """Return if a grammar compiles and takes its first tokens. One at a time; others wait.

        Args:
            grammar: in the library's syntax.

        Raises:
            RequestError: it does not; with the library's reason, or because it needs too much time or memory.
            OverloadedError: the guard is closed.
            EngineError: the process does not start.
        """
        with self._lock:
            answer = self._ask(grammar)
        if answer.error is not None:
            raise RequestError(f"the constraint cannot be used: {answer.error}", code="invalid_grammar")

    def start(self) -> None:
        """Start the process now rather than at the first grammar.

        Raises:
            OverloadedError: the guard is closed.
            EngineError: the process does not start.
        """
        with self._lock:
            self._running()

    def close(self) -> None:
        """End the process, and with it a trial in progress. May be called twice, from any thread."""
        self._is_closed = True
        popen = self._popen
        if popen is not None:
            popen.kill()
        with self._lock:
            self._drop()

    def _ask(self, grammar: str) -> GuardReply:
        # Twice: the first process may have been dying of something else when the grammar reached it.
        for _ in range(2):
            body = self._ask_once(grammar)
            if body is not None:
                return msgspec.msgpack.decode(body, type=GuardReply)
            self._drop()
            self._check_open()
        raise _too_complex("compiling it exhausts memory or the stack")

    def _ask_once(self, grammar: str) -> bytes | None:
        """Return the answer, or None when the process died over it."""
        popen = self._running()
        assert popen.stdin is not None
        assert popen.stdout is not None
        try:
            write_frame(popen.stdin.fileno(), grammar)
            return read_frame(popen.stdout.fileno(), time.monotonic() + self._deadline_s)
        except TimeoutError:
            self._drop()
            raise _too_complex(f"it takes longer than {self._deadline_s:g} s to compile") from None
        except BrokenPipeError:
            return None

    def _running(self) -> subprocess.Popen[bytes]:
        """Return the process, started if there is none or the last one died idle."""
        self._check_open()
        if self._popen is not None and self._popen.poll() is None:
            return self._popen
        self._drop()
        command = [sys.executable, "-m", GUARD_MODULE]
        popen = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        self._popen = popen
        self._reap = weakref.finalize(self, _end, popen)
        assert popen.stdin is not None
        assert popen.stdout is not None
        try:
            write_frame(popen.stdin.fileno(), self._start)
            ready = read_frame(popen.stdout.fileno(), time.monotonic() + _START_DEADLINE_S)
        except (TimeoutError, BrokenPipeError):
            ready = None
        if ready is None or self._is_closed:
            self._drop()
            self._check_open()
            raise EngineError("the process that tries grammars did not start; its error output says why")
        return popen

    def _drop(self) -> None:
        if self._reap is not None:
            self._reap()
        self._popen = self._reap = None

    def _check_open(self) -> None:
        if self._is_closed:
            raise OverloadedError("structured output is shutting down: no constraint is compiled any more")


def _end(popen: subprocess.Popen[bytes]) -> None:
    popen.kill()
    for pipe in (popen.stdin, popen.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
    popen.wait()


def _too_complex(reason: str) -> RequestError:
    return RequestError(f"the constraint is too complex: {reason}; simplify it", code="grammar_too_large")
