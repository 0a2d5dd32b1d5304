"""One API call as logs see it: its id, and what became of the requests that the engine ran for it.

Not here: what the call was answered with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import msgspec

from slipstream.metrics.instruments import RequestEnd


class CallSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What the requests of one call came to, together; times are those of the slowest, None where none got there.

    Args:
        num_requests: requests of the engine.
        num_prompt_tokens, num_prefix_hit_tokens, num_generated_tokens: over all of them.
        queue_s, prefill_s, decode_s: as the engine measured them.
        first_token_s: from a request's arrival to its first token, as the front end saw it.
        acceptance_length: mean tokens per verify step; None without a verify step.
        finish_reasons: each once, in the order in which they came.
    """

    num_requests: int
    num_prompt_tokens: int
    num_prefix_hit_tokens: int
    num_generated_tokens: int
    queue_s: float | None
    prefill_s: float | None
    decode_s: float | None
    first_token_s: float | None
    acceptance_length: float | None
    finish_reasons: tuple[str, ...]


class Call:
    """Follows one API call. Use it from one event loop.

    Args:
        call_id: names the call in logs and answers; need not be unique.
    """

    def __init__(self, call_id: str) -> None:
        self.call_id = call_id
        self.ends: list[RequestEnd] = []
        self._num_open = 0
        self._settled = asyncio.Event()
        self._settled.set()

    def begin(self) -> None:
        """Note that the engine got a request."""
        self._num_open += 1
        self._settled.clear()

    def end(self, end: RequestEnd) -> None:
        """Note that a request has ended and that the engine has said its last word about it."""
        self.ends.append(end)
        self._num_open -= 1
        if not self._num_open:
            self._settled.set()

    async def wait_settled(self) -> None:
        """Wait until every request that began has ended."""
        await self._settled.wait()

    def summary(self) -> CallSummary | None:
        """Return what the requests came to; None when the engine got none."""
        if not self.ends:
            return None
        phases = [end.phases for end in self.ends if end.phases is not None]
        num_verify_steps = sum(end.num_verify_steps for end in self.ends)
        num_emitted = sum(end.num_emitted for end in self.ends)
        return CallSummary(
            num_requests=len(self.ends),
            num_prompt_tokens=sum(end.num_prompt_tokens for end in self.ends),
            num_prefix_hit_tokens=sum(end.num_prefix_hit_tokens for end in self.ends),
            num_generated_tokens=sum(end.num_generated_tokens for end in self.ends),
            queue_s=_slowest(each.queue_s for each in phases),
            prefill_s=_slowest(each.prefill_s for each in phases),
            decode_s=_slowest(each.decode_s for each in phases),
            first_token_s=_slowest(end.first_token_s for end in self.ends),
            acceptance_length=num_emitted / num_verify_steps if num_verify_steps else None,
            finish_reasons=tuple(dict.fromkeys(end.finish_reason for end in self.ends)),
        )


def _slowest(times: Iterable[float | None]) -> float | None:
    return max((time for time in times if time is not None), default=None)
