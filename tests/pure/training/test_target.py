from __future__ import annotations

import pytest

from slipstream.base.errors import CheckpointError, ConfigError
from slipstream.demo import demo_path
from slipstream.training.settings import TrainSettings
from slipstream.training.target import find_target, make_processor, settle_settings, settle_target


def test_the_demo_is_found_by_name():
    assert find_target("demo") == demo_path()


def test_a_target_that_cannot_write_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="nowhere: no such folder"):
        find_target(str(tmp_path / "nowhere"))
    with pytest.raises(CheckpointError, match=r"config\.json is missing"):
        find_target(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"tokenizer\.json is missing \(the target has to write text\)"):
        find_target(str(tmp_path))


def test_options_of_the_engine_are_passed_on():
    config = settle_target(demo_path(), drafter="none", device="cpu", max_model_len=64)
    assert config.scheduler.max_model_len == 64
    with pytest.raises(ConfigError, match="device"):
        settle_target(demo_path(), device="abacus")


def test_sizes_that_are_left_open_follow_the_target():
    settled = settle_settings(TrainSettings(), 256)
    assert (settled.max_length, settled.batch_tokens) == (256, 1024)
    assert settle_settings(TrainSettings(), 1_000_000).max_length == 1024
    assert settle_settings(TrainSettings(max_length=2000, batch_tokens=2000), 4000).batch_tokens == 2000


def test_texts_longer_than_the_target_are_refused():
    with pytest.raises(ConfigError, match="--max-length 300: the target has 256 positions"):
        settle_settings(TrainSettings(max_length=300), 256)


def test_prompts_are_rendered_without_an_engine():
    config = settle_target(demo_path(), drafter="none", device="cpu", max_model_len=64)
    processor = make_processor(demo_path(), config)
    assert processor.facts.max_model_len == 64
    assert processor.facts.eos_token_ids == config.model.target.eos_token_ids
    assert len(processor.tokenize("the fox")) >= 2
