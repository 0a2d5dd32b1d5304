from __future__ import annotations

import pytest

from slipstream.scheduler.lifecycle import Ledger, Waiting
from slipstream.scheduler.queue import WaitingQueue
from support.fake_runner import make_request


def make_waiting(order: int) -> Waiting:
    return Waiting(Ledger.open(make_request(f"r{order}", [1]), order))


def test_first_come_first_served_and_preempted_ones_first():
    queue = WaitingQueue()
    for order in (3, 4, 5):
        queue.push(make_waiting(order))
    queue.push_front(make_waiting(2))
    queue.push_front(make_waiting(1))
    assert [item.ledger.order for item in queue] == [1, 2, 3, 4, 5]
    assert len(queue) == 5
    assert queue.head is not None
    assert queue.head.ledger.order == 1
    assert [queue.pop().ledger.order for _ in range(5)] == [1, 2, 3, 4, 5]
    assert queue.head is None


def test_a_request_in_the_middle_can_be_removed():
    queue = WaitingQueue()
    for order in (3, 4, 5):
        queue.push(make_waiting(order))
    removed = queue.remove("r4")
    assert removed is not None
    assert removed.ledger.order == 4
    assert queue.remove("r4") is None
    assert "r4" not in queue
    assert "r5" in queue


def test_a_younger_request_never_overtakes():
    queue = WaitingQueue()
    queue.push(make_waiting(3))
    with pytest.raises(AssertionError):
        queue.push_front(make_waiting(4))
