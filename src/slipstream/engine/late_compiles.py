"""What becomes of a kernel that is compiled after the engine was ready: counted and logged, or the engine's end."""

from __future__ import annotations

import logging
from typing import Protocol

from slipstream.base.errors import EngineError

_LOG = logging.getLogger("slipstream.engine")


class Watch(Protocol):
    """What is asked of a watch over compilations."""

    @property
    def num_compiled(self) -> int:
        """Compilations since it was armed."""
        ...

    @property
    def last_name(self) -> str:
        """The kernel of the last one."""
        ...


class LateCompiles:
    """Looks at a watch after every turn.

    Args:
        watch: armed when the engine is ready.
        is_fatal: end the engine at the first compilation.
    """

    def __init__(self, watch: Watch, *, is_fatal: bool) -> None:
        self._watch = watch
        self._is_fatal = is_fatal
        self._told = 0

    @property
    def count(self) -> int:
        """Compilations so far."""
        return self._watch.num_compiled

    def check(self) -> None:
        """Log what is new, or end the engine.

        Raises:
            EngineError: a kernel was compiled, and that is fatal.
        """
        if self.count == self._told:
            return
        self._told = self.count
        text = f"kernel {self._watch.last_name} was compiled while requests waited; {self.count} since the start"
        if self._is_fatal:
            raise EngineError(f"{text}. The warm-up missed it: report it, or start with --late-compile warn")
        _LOG.warning("%s: the warm-up missed it, please report it", text)
