"""Reach an engine process from asyncio. Not here: the protocol it fulfils (interface), starting it (spawn)."""

from __future__ import annotations

import asyncio

import zmq
import zmq.asyncio

from slipstream.base.errors import EngineError
from slipstream.engine.spawn import EngineProcess
from slipstream.wire.codec import decode_to_frontend, encode
from slipstream.wire.messages import Abort, Failed, Outputs, Ready, Shutdown, Stopped, Submit, ToEngine, ToFrontend
from slipstream.wire.request import Request

DEATH_POLL_S = 0.2
"""How often a silent engine process is checked for being alive."""

LAST_WORDS_S = 0.2
"""How long messages of a dead engine process may still take to arrive."""


class SilenceWatch:
    """Counts the time in which an engine owes news and sends none.

    Time is counted in waits that ended without a message, not read from a clock: a front end that was itself stopped,
    or busy, does not take its own absence for the engine's.

    Args:
        max_silence_s: longest silence; 0 for any.
    """

    def __init__(self, max_silence_s: float) -> None:
        self._max_silence_s = max_silence_s
        self._silent_s = 0.0
        self._owed: set[str] = set()

    def begin(self, request_id: str) -> None:
        """Note that a request was sent; from now on the engine owes news."""
        if not self._owed:
            self._silent_s = 0.0
        self._owed.add(request_id)

    def hear(self, message: ToFrontend) -> None:
        """Note a message."""
        self._silent_s = 0.0
        if isinstance(message, Outputs):
            self._owed.difference_update(o.request_id for o in message.outputs if o.finish_reason is not None)

    def is_over(self, waited_s: float) -> bool:
        """Return whether the engine has been silent for too long.

        Args:
            waited_s: seconds that were just waited in vain.
        """
        if not self._owed or not self._max_silence_s:
            return False
        self._silent_s += waited_s
        return self._silent_s >= self._max_silence_s

    def describe(self, pid: int) -> str:
        """Return what happened, in words.

        Args:
            pid: of the engine process.
        """
        num_owed = len(self._owed)
        requests = "a request runs" if num_owed == 1 else f"{num_owed} requests run"
        return (
            f"the engine process {pid} hangs: it lives, but has said nothing for {self._silent_s:.0f} s although "
            f"{requests} (--engine-timeout-s {self._max_silence_s:g})"
        )


class ProcessClient:
    """An `AsyncEngineClient` of an engine process; belongs to the event loop that it was made in.

    Args:
        process: the started process; this client ends it.
        max_silence_s: seconds without a message, while requests run, after which the process counts as hung; 0 never.
    """

    def __init__(self, process: EngineProcess, *, max_silence_s: float = 0.0) -> None:
        self._process = process
        self._silence = SilenceWatch(max_silence_s)
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.PAIR)
        # A silent limit would make one side wait for the other; what can queue up is bounded by max_queue.
        self._socket.set(zmq.SNDHWM, 0)
        self._socket.set(zmq.RCVHWM, 0)
        self._socket.set(zmq.LINGER, 0)
        self._socket.bind(process.address)
        self._arriving: asyncio.Future[bytes] | None = None
        self._is_ready = False
        self._is_closed = False

    def submit(self, request: Request) -> None:
        """Queue a request."""
        self._silence.begin(request.request_id)
        self._send(Submit(request=request))

    def abort(self, request_id: str) -> None:
        """End a request; unknown ids are ignored."""
        self._send(Abort(request_id=request_id))

    async def receive(self) -> ToFrontend:
        """Wait for the next message; `Failed` once the process is gone, hangs or speaks nonsense."""
        while not self._is_closed:
            frame = await self._next_frame(DEATH_POLL_S)
            if frame is None and self._process.exit_code() is not None:
                frame = await self._next_frame(LAST_WORDS_S)
                if frame is None:
                    return Failed(kind=EngineError.__name__, reason=self._process.describe_exit())
            if frame is not None:
                return self._decode(frame)
            if self._silence.is_over(DEATH_POLL_S):
                # One that hangs would not take its leave either.
                self._is_ready = False
                return Failed(kind=EngineError.__name__, reason=self._silence.describe(self._process.pid))
        return Stopped()

    async def close(self, grace_s: float = 5.0) -> None:
        """End the process: ask it, wait, then kill it. One that still loads does not listen, and is killed at once.

        Args:
            grace_s: seconds that the process has for ending by itself.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._send(Shutdown(drain=False))
        try:
            await asyncio.to_thread(self._process.close, grace_s if self._is_ready else 0.0)
        finally:
            if self._arriving is not None:
                self._arriving.cancel()
            self._socket.close(linger=0)
            self._context.destroy(linger=0)

    def _decode(self, frame: bytes) -> ToFrontend:
        try:
            message = decode_to_frontend(frame)
        except EngineError as error:
            return Failed(kind=EngineError.__name__, reason=str(error))
        self._is_ready = self._is_ready or isinstance(message, Ready)
        self._silence.hear(message)
        return message

    async def _next_frame(self, timeout_s: float) -> bytes | None:
        if self._arriving is None:
            self._arriving = asyncio.ensure_future(self._socket.recv())
        done, _ = await asyncio.wait({self._arriving}, timeout=timeout_s)
        if not done or self._is_closed:
            return None
        frame, self._arriving = self._arriving.result(), None
        return frame

    def _send(self, message: ToEngine) -> None:
        # With NOBLOCK the future is done at once. A message that nobody takes means that the process is gone, which
        # `receive` reports.
        sent = asyncio.ensure_future(self._socket.send(encode(message), flags=zmq.NOBLOCK))
        if not isinstance(sent.exception(), zmq.Again | None):
            sent.result()
