from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from slipstream.base.errors import EngineError
from slipstream.engine.late_compiles import LateCompiles


def test_each_compilation_is_logged_once(caplog):
    watch = SimpleNamespace(num_compiled=0, last_name="")
    late = LateCompiles(watch, is_fatal=False)
    with caplog.at_level(logging.WARNING, "slipstream.engine"):
        late.check()
        assert not caplog.records
        watch.num_compiled, watch.last_name = 2, "write_kv_kernel"
        late.check()
        late.check()
    assert late.count == 2
    assert [record.getMessage() for record in caplog.records] == [
        "kernel write_kv_kernel was compiled while requests waited; 2 since the start: the warm-up missed it, please "
        "report it"
    ]


def test_it_ends_the_engine_when_it_was_told_so():
    watch = SimpleNamespace(num_compiled=0, last_name="")
    late = LateCompiles(watch, is_fatal=True)
    late.check()
    watch.num_compiled, watch.last_name = 1, "route_kernel"
    with pytest.raises(EngineError, match="route_kernel was compiled .* --late-compile warn"):
        late.check()
