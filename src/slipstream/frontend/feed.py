"""Hand many requests to an engine, constrained ones as fast as it accepts them.

An engine turns constrained requests away when too many of them wait to be compiled. Callers of a server are told to
come again; a program that gave all its prompts in one call is not. Not here: what comes back (llm).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from slipstream.engine.interface import SyncEngine
from slipstream.wire.messages import Outputs
from slipstream.wire.request import Request

MAX_COMPILING = 64
"""Most requests of one call that wait for their constraints to be compiled; far fewer than an engine takes."""


class Feed:
    """The requests of one call that the engine has not got yet.

    Args:
        engine: gets them.
        requests: in order.
    """

    def __init__(self, engine: SyncEngine, requests: Sequence[Request]) -> None:
        self._engine = engine
        self._left = deque(requests)
        self._compiling: set[str] = set()

    def submit(self) -> None:
        """Submit, in order, what may be submitted now."""
        while self._left and len(self._compiling) < MAX_COMPILING:
            request = self._left.popleft()
            if request.sampling.grammar is not None:
                self._compiling.add(request.request_id)
            self._engine.submit(request)

    def follow(self, outputs: Outputs) -> None:
        """Note whose constraints are compiled, or have no need of it any more."""
        self._compiling.difference_update(
            output.request_id for output in outputs.outputs if output.is_accepted or output.finish_reason is not None
        )
