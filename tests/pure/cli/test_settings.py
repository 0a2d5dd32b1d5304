from __future__ import annotations

import pytest

from slipstream.base.errors import ConfigError
from slipstream.cli.settings import settle
from slipstream.config.options import Options
from support.tiny_checkpoints import write_tiny_config


def test_options_are_settled_against_machine_and_environment(tmp_path, monkeypatch):
    options = Options(model=str(write_tiny_config(tmp_path / "tiny")), max_model_len=64)
    config = settle(options)
    assert config.scheduler.max_model_len == 64
    assert config.cache.poison_freed_pages is False
    monkeypatch.setenv("SLIPSTREAM_POISON_FREED_PAGES", "on")
    assert settle(options).cache.poison_freed_pages is True


def test_a_misspelt_switch_stops_the_start(tmp_path, monkeypatch):
    monkeypatch.setenv("SLIPSTREAM_POISON_FREED_PAGE", "on")
    with pytest.raises(ConfigError, match="did you mean SLIPSTREAM_POISON_FREED_PAGES"):
        settle(Options(model=str(write_tiny_config(tmp_path / "tiny"))))
