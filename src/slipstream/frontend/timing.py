"""When the tokens of one request arrived, for the metrics."""

from __future__ import annotations

import msgspec

from slipstream.frontend.stream import RequestStream
from slipstream.metrics.instruments import Instruments, Phases, RequestEnd
from slipstream.wire.messages import FinishReason, RequestOutput


class Timing:
    """Arrival times of one request, in seconds of one monotonic clock.

    Args:
        arrival_s: when the request was submitted.
    """

    def __init__(self, arrival_s: float) -> None:
        self._arrival_s = arrival_s
        self._first_s: float | None = None
        self._last_s = arrival_s

    def observe(self, instruments: Instruments, now_s: float) -> None:
        """Note that tokens arrived."""
        if self._first_s is None:
            self._first_s = now_s
            instruments.observe_first_token(now_s - self._arrival_s)
        else:
            instruments.observe_gap(now_s - self._last_s)
        self._last_s = now_s

    def end_of(self, stream: RequestStream, finish_reason: FinishReason, now_s: float) -> RequestEnd:
        """Return what the metrics should know of a request that ended now."""
        num_prompt_tokens = len(stream.request.prompt_token_ids)
        return RequestEnd(
            finish_reason=finish_reason,
            num_prompt_tokens=num_prompt_tokens,
            num_generated_tokens=stream.num_generated_tokens,
            num_prefix_hit_tokens=stream.num_prefix_hit_tokens,
            max_tokens=stream.request.max_seq_len - num_prompt_tokens,
            e2e_s=now_s - self._arrival_s,
            after_first_token_s=0.0 if self._first_s is None else self._last_s - self._first_s,
            first_token_s=None if self._first_s is None else self._first_s - self._arrival_s,
            num_verify_steps=stream.num_verify_steps,
            num_emitted=stream.num_emitted,
        )

    @staticmethod
    def with_phases(end: RequestEnd, last: RequestOutput) -> RequestEnd:
        """Return the end with what the engine's last output says; all times zero means that it says nothing.

        A request that was ended in the queue has no prefill, and one without a first token no decode: a time of zero
        would be a measurement of something that was not done.
        """
        if not (last.queue_s or last.prefill_s or last.decode_s):
            return end
        has_token = end.num_generated_tokens > 0
        phases = Phases(
            last.queue_s,
            last.prefill_s if last.prefill_s or has_token else None,
            last.decode_s if last.decode_s or has_token else None,
        )
        return msgspec.structs.replace(end, phases=phases, num_preemptions=last.num_preemptions)
