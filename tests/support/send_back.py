"""Preemption at will: running requests are sent back to the queue at any moment, as if pages had run out."""

from __future__ import annotations

from slipstream.engine.core import EngineCore
from slipstream.scheduler.lifecycle import Decoding
from slipstream.wire.messages import RequestOutput


def send_back_youngest(core: EngineCore, every: int) -> None:
    """Make the youngest decoding request of an engine leave before every n-th turn, as long as another one runs.

    Args:
        core: changed in place.
        every: turns.
    """
    turn, num_turns = core.turn, 0

    def sent_back() -> list[RequestOutput]:
        nonlocal num_turns
        num_turns += 1
        running = core._scheduler._state.by_age()
        youngest = running[-1] if len(running) > 1 else None
        if num_turns % every == 0 and isinstance(youngest, Decoding):
            youngest.is_leaving = True
        return turn()

    core.turn = sent_back  # type: ignore[method-assign]
