"""The requests in flight of one front end: whose they are, when their tokens came, and what to tell about their ends.

A request is retired when its caller has its last delta or has left. The engine's last word, which carries its times,
may come later: a request that a stop string ended still runs in the engine for a moment.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from slipstream.base.errors import SlipstreamError
from slipstream.frontend.call import Call
from slipstream.frontend.generation import Generation
from slipstream.frontend.status import error_of_output
from slipstream.frontend.timing import Timing
from slipstream.metrics.instruments import Instruments, RequestEnd
from slipstream.wire.messages import FinishReason, RequestOutput


@dataclass(frozen=True, slots=True)
class _Entry:
    generation: Generation
    timing: Timing
    call: Call | None


class InFlight:
    """Requests in flight.

    Attributes:
        instruments: told of times and ends; None before the engine is ready.
        idle: set when the last request has gone; clear it to wait for that.
    """

    def __init__(self) -> None:
        self.instruments: Instruments | None = None
        self.idle = asyncio.Event()
        self._entries: dict[str, _Entry] = {}
        self._ending: dict[str, tuple[RequestEnd, Call | None]] = {}
        self._num_named = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, request_id: object) -> bool:
        # Until the engine's last word about it, an id is not free: that word would end whoever took it over.
        return request_id in self._entries or request_id in self._ending

    @property
    def request_ids(self) -> list[str]:
        """Every request in flight."""
        return list(self._entries)

    def name_for(self, call: Call) -> str:
        """Return an id for the next request of a call, which no other request gets: callers may repeat theirs."""
        self._num_named += 1
        return f"{call.call_id}-{self._num_named}"

    def add(self, generation: Generation, call: Call | None) -> None:
        """Take in a request that was submitted now."""
        self._entries[generation.request_id] = _Entry(generation, Timing(time.monotonic()), call)
        if call is not None:
            call.begin()
        self._note_streams()

    def get(self, request_id: str) -> Generation | None:
        """Return a request in flight."""
        entry = self._entries.get(request_id)
        return None if entry is None else entry.generation

    def take(self, output: RequestOutput) -> bool:
        """Take the engine's news of a request, in flight or not.

        Returns:
            Whether the engine goes on with a request that has ended for its caller, and should be told.
        """
        generation = self.get(output.request_id)
        if generation is None:
            self.take_last_word(output)
            return False
        if output.is_accepted:
            generation.accept()
            return False
        delta = generation.stream.feed(output)
        if delta.token_ids:
            self.note_tokens(output.request_id)
        if delta.finish_reason in ("error", "abort"):
            generation.fail(error_of_output(output))
        else:
            generation.put(delta)
        is_last = output.finish_reason is not None
        if delta.finish_reason is not None:
            self.retire(output.request_id, delta.finish_reason, output if is_last else None)
        return generation.stream.is_cut and not is_last

    def note_tokens(self, request_id: str) -> None:
        """Note that tokens of a request arrived now."""
        if self.instruments is not None:
            self._entries[request_id].timing.observe(self.instruments, time.monotonic())

    def retire(self, request_id: str, finish_reason: FinishReason, last: RequestOutput | None) -> None:
        """Take a request out.

        Args:
            request_id: in flight.
            finish_reason: how it ended for its caller.
            last: the engine's last word; None when it is still to come, see `take_last_word`.
        """
        entry = self._entries.pop(request_id)
        end = entry.timing.end_of(entry.generation.stream, finish_reason, time.monotonic())
        if last is None:
            self._ending[request_id] = (end, entry.call)
        else:
            self._tell(Timing.with_phases(end, last), entry.call)
        self._note_streams()

    def take_last_word(self, output: RequestOutput) -> None:
        """Take the engine's last word about a request that was retired before; anything else is ignored."""
        if output.finish_reason is not None and output.request_id in self._ending:
            end, call = self._ending.pop(output.request_id)
            self._tell(Timing.with_phases(end, output), call)

    def fail_all(self, error: SlipstreamError) -> None:
        """End every request with an error."""
        for request_id, entry in list(self._entries.items()):
            entry.generation.fail(error)
            self.retire(request_id, "error", RequestOutput(request_id=request_id, finish_reason="error"))

    def expect_no_more(self) -> None:
        """The engine is gone: no last words will come."""
        ending, self._ending = self._ending, {}
        for end, call in ending.values():
            if call is not None:
                call.end(end)

    def _tell(self, end: RequestEnd, call: Call | None) -> None:
        if self.instruments is not None:
            self.instruments.observe_end(end)
        if call is not None:
            call.end(end)

    def _note_streams(self) -> None:
        if self.instruments is not None:
            self.instruments.set_streams(len(self._entries))
        if not self._entries:
            self.idle.set()
