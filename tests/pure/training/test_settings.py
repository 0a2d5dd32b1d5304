from __future__ import annotations

import msgspec
import pytest

from slipstream.base.errors import CheckpointError, ConfigError
from slipstream.training.settings import (
    Budget,
    TrainSettings,
    check_settings,
    digest_of,
    hash_ends,
    hash_file,
    run_identity,
)

FITTING = TrainSettings(max_length=64, batch_tokens=128)


@pytest.mark.parametrize(("unit", "share"), [("steps", 0.1), ("tokens", 0.5), ("minutes", 0.05)])
def test_a_budget_counts_its_own_unit(unit, share):
    budget = Budget(unit=unit, amount=20)
    assert budget.progress(steps=2, tokens=10, seconds=60) == pytest.approx(share)


def test_settings_that_can_run_come_back():
    assert check_settings(FITTING) is FITTING


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"seed": -1}, "--seed -1"),
        ({"written_tokens": 0}, "--write-tokens 0"),
        ({"answer_tokens": 3}, "--answer-tokens 3"),
        ({"max_length": 7}, "--max-length 7"),
        ({"batch_tokens": 63}, "--batch-tokens 63 is not allowed: give a whole number of at least 64"),
        ({"num_unrolled": 0}, "--unroll 0"),
        ({"draft_vocab_size": -5}, "--draft-vocab-size -5"),
        ({"log_every": 0}, "--log-every 0"),
        ({"temperatures": ()}, "--temperatures"),
        ({"temperatures": (0.0, 2.5)}, "2.5"),
        ({"step_weight": 0.0}, "--step-weight 0.0"),
        ({"peak_rate": float("nan")}, "--learning-rate nan"),
        ({"budget": Budget(unit="minutes", amount=0)}, "--max-minutes 0: give a finite number above 0"),
    ],
)
def test_a_value_outside_its_range_is_named(change, said):
    with pytest.raises(ConfigError, match=said):
        check_settings(msgspec.structs.replace(FITTING, **change))


@pytest.fixture
def inputs(tmp_path):
    target = tmp_path / "target"
    target.mkdir()
    (target / "config.json").write_text("{}")
    (target / "model.safetensors").write_bytes(b"a" * 100)
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("x")
    return target, prompts


def digest(target, prompts, settings=FITTING, kind="eagle3"):
    return digest_of(run_identity(settings, kind=kind, target=target, prompts=prompts))


def test_a_run_is_what_it_works_on_and_not_where_it_lies(inputs, tmp_path):
    target, prompts = inputs
    first = digest(target, prompts)
    moved = target.rename(tmp_path / "elsewhere")
    assert digest(moved, prompts) == first
    (moved / "model.safetensors").write_bytes(b"a" * 99 + b"b")
    assert digest(moved, prompts) != first


def test_other_prompts_settings_or_drafters_are_another_run(inputs):
    target, prompts = inputs
    first = digest(target, prompts)
    assert digest(target, prompts, kind="other") != first
    assert digest(target, prompts, msgspec.structs.replace(FITTING, seed=1)) != first
    prompts.write_text("y")
    assert digest(target, prompts) != first


def test_missing_inputs_are_named(inputs, tmp_path):
    target, prompts = inputs
    with pytest.raises(ConfigError, match="nowhere"):
        digest(target, tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match=r"config\.json"):
        digest(tmp_path, prompts)


def test_both_ends_of_a_large_file_count(tmp_path):
    file = tmp_path / "a.safetensors"
    words = []
    for first, last in ((b"a", b"z"), (b"b", b"z"), (b"a", b"y")):
        file.write_bytes(first + bytes(3 << 20) + last)
        words.append(hash_ends(tmp_path))
    assert len(set(words)) == 3


def test_a_files_hash_is_the_usual_one(tmp_path):
    file = tmp_path / "a"
    file.write_bytes(b"abc")
    assert hash_file(file).startswith("ba7816bf")
