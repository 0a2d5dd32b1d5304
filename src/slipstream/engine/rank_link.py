"""The link to one other rank: its process, its socket, and what became of it. Not here: what is said (`ranks`)."""

from __future__ import annotations

import contextlib
import time
from typing import TypeVar

import zmq

from slipstream.base import errors
from slipstream.base.errors import EngineError, SlipstreamError
from slipstream.engine.spawn import EngineProcess
from slipstream.parallel.group import RankLost
from slipstream.wire.codec import decode_to_leader, encode
from slipstream.wire.ranks import Hello, Leave, Loaded, RankFailed, StepAgreement, ToLeader, ToWorker

LAST_WORDS_S = 2.0
"""How long a rank that was lost may take to say why."""

_POLL_MS = 50
_ARRIVAL_MS = 200
_Expected = TypeVar("_Expected", Hello, Loaded, StepAgreement)


class Worker:
    """One other rank: its process and the socket to it.

    Args:
        rank: 1 .. tp_size - 1.
        process: the started process; this object ends it.
        context: of the socket.
    """

    def __init__(self, rank: int, process: EngineProcess, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        self.rank = rank
        self.process = process
        self._socket = context.socket(zmq.PAIR)
        self._socket.set(zmq.SNDHWM, 0)
        self._socket.set(zmq.RCVHWM, 0)
        self._socket.set(zmq.LINGER, 0)
        self._socket.bind(process.address)

    def send(self, message: ToWorker) -> None:
        """Send a message; one that nobody takes means that the process is gone, which others report."""
        with contextlib.suppress(zmq.Again):
            self._socket.send(encode(message), flags=zmq.NOBLOCK)

    def receive(self, kind: type[_Expected], timeout_s: float) -> _Expected:
        """Wait for the next message, which must be of a kind.

        Raises:
            SlipstreamError: what the rank reported instead; of its class where that is one of ours.
            EngineError: the process died, is silent, or said something else.
        """
        message = self._next(timeout_s)
        if isinstance(message, RankFailed):
            raise _as_error(message)
        if message is None:
            silence = EngineError(f"rank {self.rank} (process {self.process.pid}) is silent for {timeout_s:g} s")
            raise self._describe_end() or silence
        if not isinstance(message, kind):
            raise EngineError(f"rank {self.rank} said {type(message).__name__} where {kind.__name__} was expected")
        return message

    def find_fault(self, timeout_s: float) -> SlipstreamError | None:
        """Return why this rank is lost, or None while it seems well.

        Args:
            timeout_s: how long to wait for its last words or its end.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            message = self._next(max(deadline - time.monotonic(), 0.0))
            if isinstance(message, RankFailed):
                return _as_error(message)
            if message is None:
                return self._describe_end()

    def close(self, grace_s: float) -> None:
        """End the process: give it so many seconds to end by itself, then kill it."""
        self.process.close(grace_s)
        self._socket.close(linger=0)

    def _next(self, timeout_s: float) -> ToLeader | None:
        """Return the next message, or None when there is none in time or the process ended without one."""
        deadline = time.monotonic() + timeout_s
        while True:
            # The end is looked for first: its last words were sent before it, and are on their way at most.
            is_gone, is_late = self.process.exit_code() is not None, time.monotonic() >= deadline
            if self._socket.poll(_ARRIVAL_MS if is_gone else 0 if is_late else _POLL_MS):
                return decode_to_leader(self._socket.recv())
            if is_gone or is_late:
                return None

    def _describe_end(self) -> EngineError | None:
        if self.process.exit_code() is None:
            return None
        return EngineError(f"rank {self.rank} is gone: {self.process.describe_exit()}")


def close_all(workers: list[Worker], grace_s: float) -> None:
    """End worker processes, all at once: each has `grace_s` seconds from now."""
    deadline = time.monotonic() + grace_s
    for worker in workers:
        worker.send(Leave())
    for worker in workers:
        worker.close(max(deadline - time.monotonic(), 0.0))


def find_cause(workers: list[Worker], error: BaseException) -> BaseException:
    """Return why a rank was lost, if an error of rank 0 is no more than the echo of that; otherwise the error itself.

    A rank that breaks leaves its group, and all others then break in their next collective.
    """
    if not isinstance(error, RankLost):
        return error
    deadline = time.monotonic() + LAST_WORDS_S
    for worker in workers:
        fault = worker.find_fault(max(deadline - time.monotonic(), 0.0))
        if fault is not None and not isinstance(fault, RankLost):
            return fault
    return error


def _as_error(failed: RankFailed) -> SlipstreamError:
    reason = f"rank {failed.rank}: {failed.reason}"
    if failed.kind == RankLost.__name__:
        return RankLost(reason)
    kind = getattr(errors, failed.kind, EngineError)
    return kind(reason)
