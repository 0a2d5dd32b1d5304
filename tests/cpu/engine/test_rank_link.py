"""What rank 0 makes of a rank's words, of its silence and of its end."""

from __future__ import annotations

import time

import pytest
import zmq

from slipstream.base.errors import CheckpointError, EngineError
from slipstream.engine import rank_link
from slipstream.engine.rank_link import Worker, close_all, find_cause
from slipstream.parallel.group import RankLost
from slipstream.wire.codec import decode_to_worker, encode
from slipstream.wire.ranks import Leave, Loaded, RankFailed, StepAgreement, WarmUp

LATE_S = 5.0


class FakeProcess:
    """A process that is there, or ended with an exit code."""

    def __init__(self, address):
        self.address = address
        self.pid = 4711
        self.code = None
        self.grace_s = None

    def exit_code(self):
        return self.code

    def describe_exit(self):
        return f"its process {self.pid} ended with exit code {self.code}"

    def close(self, grace_s):
        self.grace_s = grace_s


@pytest.fixture
def context():
    context = zmq.Context()
    yield context
    context.destroy(linger=0)


@pytest.fixture
def make(context):
    """Return (worker, its other end)."""
    made = []

    def one(rank=1):
        worker = Worker(rank, FakeProcess(f"inproc://rank{rank}"), context)
        far = context.socket(zmq.PAIR)
        far.connect(worker.process.address)
        made.append((worker, far))
        return worker, far

    yield one
    for worker, far in made:
        worker.close(0.0)
        far.close(linger=0)


def test_words_go_both_ways(make):
    worker, far = make()
    worker.send(WarmUp())
    assert decode_to_worker(far.recv()) == WarmUp()
    far.send(encode(Loaded(rank=1)))
    assert worker.receive(Loaded, LATE_S) == Loaded(rank=1)


def test_last_words_are_raised_as_their_own_class(make):
    worker, far = make()
    far.send(encode(RankFailed(rank=1, kind="CheckpointError", reason="no file")))
    worker.process.code = 1
    with pytest.raises(CheckpointError, match="rank 1: no file"):
        worker.receive(Loaded, LATE_S)
    far.send(encode(RankFailed(rank=1, kind="ZeroDivisionError", reason="by nothing")))
    with pytest.raises(EngineError, match="rank 1: by nothing"):
        worker.receive(Loaded, LATE_S)


def test_an_end_without_words_is_seen_at_once_and_silence_in_time(make):
    worker, _ = make()
    began = time.monotonic()
    with pytest.raises(EngineError, match=r"rank 1 \(process 4711\) is silent for 0.1 s"):
        worker.receive(Loaded, 0.1)
    worker.process.code = 9
    with pytest.raises(EngineError, match="rank 1 is gone: its process 4711 ended with exit code 9"):
        worker.receive(Loaded, 60.0)
    assert time.monotonic() - began < LATE_S


def test_another_word_than_expected_is_an_error(make):
    worker, far = make()
    far.send(encode(Loaded(rank=1)))
    with pytest.raises(EngineError, match="rank 1 said Loaded where StepAgreement was expected"):
        worker.receive(StepAgreement, LATE_S)


def test_a_message_to_nobody_does_not_wait(context):
    worker = Worker(1, FakeProcess("inproc://nobody"), context)
    worker.send(WarmUp())
    worker.close(0.0)
    assert worker.process.grace_s == 0.0


def test_the_cause_is_found_behind_the_echoes(make, monkeypatch):
    monkeypatch.setattr(rank_link, "LAST_WORDS_S", 0.2)
    (first, first_far), (second, _) = make(1), make(2)
    echo = RankLost("rank 0 of 3: another rank is gone or silent")
    assert find_cause([first, second], echo) is echo, "both seem well: there is nothing better to say"
    first_far.send(encode(StepAgreement(rank=1, step_id=1, rows=())))
    first_far.send(encode(RankFailed(rank=1, kind="RankLost", reason="another rank is gone or silent")))
    second.process.code = -9
    assert "rank 2 is gone" in str(find_cause([first, second], echo))
    own = EngineError("a fault of rank 0")
    assert find_cause([first, second], own) is own, "rank 0's own fault needs no other cause"


def test_all_are_told_before_anyone_is_waited_for(make):
    (first, first_far), (second, second_far) = make(1), make(2)
    close_all([first, second], 3.0)
    for far in (first_far, second_far):
        assert decode_to_worker(far.recv()) == Leave()
    assert 0.0 <= second.process.grace_s <= first.process.grace_s <= 3.0
