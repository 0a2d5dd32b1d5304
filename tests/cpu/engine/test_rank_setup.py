"""Ranks that could decide differently are refused before they meet, with both sides named."""

from __future__ import annotations

import msgspec
import pytest
import torch

from slipstream.base.errors import ConfigError
from slipstream.base.version import VERSION
from slipstream.config.hardware import Hardware
from slipstream.config.options import Options
from slipstream.config.resolve import config_digest, resolve
from slipstream.engine.rank_setup import WorkerOrder, check_identity, identity_of
from support.tiny_checkpoints import write_tiny_config

MACHINE = Hardware(num_cpus=2, total_memory_bytes=2**33, available_memory_bytes=2**32)


@pytest.fixture
def config(tmp_path):
    return resolve(Options(model=str(write_tiny_config(tmp_path / "tiny")), tp=2), MACHINE)


def test_an_order_crosses_as_json(config):
    order = WorkerOrder(config=config, rank=1, timeout_s=2.5)
    assert msgspec.json.decode(msgspec.json.encode(order), type=WorkerOrder) == order


def test_an_identity_is_made_of_what_decisions_depend_on(config, monkeypatch):
    identity = identity_of(config)
    assert identity.config == config_digest(config)
    assert (identity.version, identity.torch) == (VERSION, torch.__version__)
    assert identity.switches == "none"
    monkeypatch.setenv("SLIPSTREAM_LOG_LEVEL", "debug")
    assert identity_of(config).switches == "log_level=debug"
    other = msgspec.structs.replace(config, num_threads=config.num_threads + 1)
    assert identity_of(other).config != identity.config


@pytest.mark.parametrize("field", ["config", "switches", "version", "torch", "arithmetic"])
def test_every_difference_is_refused_with_both_values(config, field):
    ours = identity_of(config)
    check_identity(1, ours, ours)
    theirs = msgspec.structs.replace(ours, **{field: "something else"})
    with pytest.raises(ConfigError) as caught:
        check_identity(3, theirs, ours)
    assert f"{field} is {getattr(ours, field)} on rank 0 and something else on rank 3" in str(caught.value)
