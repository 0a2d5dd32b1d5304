"""Requests that wait for a row, oldest first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from slipstream.scheduler.lifecycle import Waiting


class WaitingQueue:
    """First come, first served. A preempted request goes to the front: it is older than all that wait."""

    def __init__(self) -> None:
        self._items: OrderedDict[str, Waiting] = OrderedDict()

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Waiting]:
        return iter(self._items.values())

    def __contains__(self, request_id: object) -> bool:
        return request_id in self._items

    @property
    def head(self) -> Waiting | None:
        """The oldest, or None."""
        return next(iter(self._items.values()), None)

    def push(self, waiting: Waiting) -> None:
        """Queue a new request behind all others."""
        self._items[waiting.ledger.request_id] = waiting

    def push_front(self, waiting: Waiting) -> None:
        """Queue a preempted request before all others."""
        # INVARIANT: victims are taken youngest first, so whoever is preempted now is older than all that wait.
        head = self.head
        assert head is None or waiting.ledger.order < head.ledger.order
        self._items[waiting.ledger.request_id] = waiting
        self._items.move_to_end(waiting.ledger.request_id, last=False)

    def pop(self) -> Waiting:
        """Take the oldest; the caller has seen that there is one."""
        return self._items.popitem(last=False)[1]

    def remove(self, request_id: str) -> Waiting | None:
        """Take a request out, or return None when it does not wait."""
        return self._items.pop(request_id, None)
