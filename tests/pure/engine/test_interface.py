"""The fakes and the real client fulfil the protocols that a front end is written against."""

from __future__ import annotations

import inspect

import pytest

from slipstream.engine.client import ProcessClient
from slipstream.engine.interface import AsyncEngineClient, SyncEngine
from support.fake_engine import FakeClient, FakeSyncEngine


@pytest.mark.parametrize(
    ("protocol", "implementation"),
    [(AsyncEngineClient, FakeClient), (AsyncEngineClient, ProcessClient), (SyncEngine, FakeSyncEngine)],
)
def test_every_method_is_there_with_its_parameters(protocol, implementation):
    methods = {name: m for name, m in vars(protocol).items() if callable(m) and not name.startswith("_")}
    assert methods
    for name, wanted in methods.items():
        offered = inspect.signature(getattr(implementation, name))
        assert inspect.iscoroutinefunction(getattr(implementation, name)) == inspect.iscoroutinefunction(wanted)
        names = list(inspect.signature(wanted).parameters)
        assert list(offered.parameters)[: len(names)] == names
        assert all(p.default is not p.empty for p in list(offered.parameters.values())[len(names) :])
