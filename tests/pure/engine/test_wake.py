"""An alarm that is never missed, whoever sounds it, and that leaves no descriptor behind."""

from __future__ import annotations

import gc
import select
import threading
import time
from pathlib import Path

import pytest

from slipstream.engine.wake import Wake
from support.descriptors import FIRST_LARGE, many_open_files


@pytest.fixture
def wake():
    wake = Wake()
    yield wake
    wake.close()


def num_descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def test_it_sounds_until_it_is_reset(wake):
    assert not wake.wait(0)
    wake.sound()
    wake.sound()
    assert wake.wait(0)
    assert wake.wait(30)
    assert select.select([wake], [], [], 0)[0]
    wake.reset()
    assert not wake.wait(0)
    wake.reset()


def test_another_thread_wakes_who_waits(wake):
    thread = threading.Timer(0.05, wake.sound)
    begun = time.monotonic()
    thread.start()
    assert wake.wait(30)
    assert time.monotonic() - begun < 10
    thread.join()


def test_it_can_sound_more_often_than_anybody_listens(wake):
    for _ in range(100_000):
        wake.sound()
    assert wake.wait(0)
    wake.reset()
    assert not wake.wait(0)


def test_closed_it_is_silent_and_nobodys_descriptor_is_touched():
    wake = Wake()
    wake.sound()
    wake.close()
    wake.close()
    wake.sound()
    wake.reset()
    assert not wake.wait(0)


def test_it_works_among_many_open_files():
    with many_open_files():
        wake = Wake()
        assert wake.fileno() > FIRST_LARGE
        assert not wake.wait(0)
        wake.sound()
        assert wake.wait(0)
        wake.close()


def test_descriptors_go_with_it():
    before = num_descriptors()
    closed, dropped = Wake(), Wake()
    assert num_descriptors() == before + 4
    closed.close()
    del dropped
    gc.collect()
    assert num_descriptors() == before
