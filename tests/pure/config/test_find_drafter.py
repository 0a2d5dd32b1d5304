import json
from pathlib import Path

import pytest

from slipstream.base.errors import CheckpointError, ConfigError
from slipstream.config.checkpoint import read_target
from slipstream.config.find_drafter import choose_drafter
from slipstream.config.schema import TargetSpec
from support.tiny_checkpoints import tiny_eagle3_config, write_tiny_config


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write_tiny_config(tmp_path / "models" / "target")


@pytest.fixture
def target(checkpoint: Path) -> TargetSpec:
    return read_target(checkpoint)


def write_head(folder: Path, target: TargetSpec, **changes: object) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(tiny_eagle3_config(target) | changes))
    return folder


def test_a_head_inside_the_checkpoint_is_taken(checkpoint: Path, target: TargetSpec) -> None:
    inside = write_head(checkpoint / "eagle3", target)
    write_head(checkpoint.parent / "eagle3", target)
    for asked in (None, "eagle3"):
        choice = choose_drafter(asked, checkpoint, target)
        assert (choice.kind, choice.folder) == ("eagle3", inside)
        assert choice.facts is not None


def test_a_head_beside_the_checkpoint_is_taken_when_it_fits(checkpoint: Path, target: TargetSpec) -> None:
    beside = write_head(checkpoint.parent / "eagle3", target)
    assert choose_drafter(None, checkpoint, target).folder == beside
    note = choose_drafter(None, checkpoint, target).note
    for words in ("without being asked for", str(beside), "beside the checkpoint", "drafter=none"):
        assert words in note


def test_a_foreign_head_beside_the_checkpoint_is_passed_over_with_a_reason(
    checkpoint: Path, target: TargetSpec
) -> None:
    write_head(checkpoint.parent / "eagle3", target, vocab_size=161)
    choice = choose_drafter(None, checkpoint, target)
    assert choice.kind == "none"
    assert "vocab_size=161" in choice.note
    with pytest.raises(CheckpointError, match="vocab_size=161"):
        choose_drafter("eagle3", checkpoint, target)


def test_a_broken_head_inside_the_checkpoint_is_an_error(checkpoint: Path, target: TargetSpec) -> None:
    write_head(checkpoint / "eagle3", target, vocab_size=161)
    with pytest.raises(CheckpointError, match="vocab_size=161"):
        choose_drafter(None, checkpoint, target)


def test_without_a_head_auto_is_none_and_eagle3_an_error(checkpoint: Path, target: TargetSpec) -> None:
    assert choose_drafter(None, checkpoint, target).kind == "none"
    with pytest.raises(ConfigError, match=r"no head at .*target/eagle3 and .*models/eagle3"):
        choose_drafter("eagle3", checkpoint, target)


def test_a_bundled_dspark_drafter_is_passed_over_with_its_reason(checkpoint: Path, target: TargetSpec) -> None:
    folder = checkpoint / "dspark"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"architectures": ["Qwen3DSparkModel"]}))
    alone = choose_drafter(None, checkpoint, target)
    assert alone.kind == "none"
    assert "bundled dspark drafter" in alone.note
    assert "not supported yet" in alone.note
    write_head(checkpoint / "eagle3", target)
    both = choose_drafter(None, checkpoint, target)
    assert both.kind == "eagle3"
    assert "bundled dspark drafter" in both.note


def test_dspark_tensors_inside_the_checkpoint_are_noticed(checkpoint: Path, target: TargetSpec) -> None:
    index = {"weight_map": {"language_model.model.dspark.fc.weight": "a.safetensors"}}
    (checkpoint / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "tensors inside the checkpoint" in choose_drafter(None, checkpoint, target).note
    (checkpoint / "model.safetensors.index.json").write_text("{")
    assert "dspark" not in choose_drafter(None, checkpoint, target).note


def test_names_and_folders(checkpoint: Path, target: TargetSpec, tmp_path: Path) -> None:
    assert choose_drafter("none", checkpoint, target).kind == "none"
    assert choose_drafter("ngram", checkpoint, target).kind == "ngram"
    elsewhere = write_head(tmp_path / "elsewhere", target)
    assert choose_drafter(str(elsewhere), checkpoint, target).folder == elsewhere
    with pytest.raises(ConfigError, match=r"dspark is not supported yet.*allowed: auto, none, ngram, eagle3"):
        choose_drafter("dspark", checkpoint, target)
    with pytest.raises(ConfigError, match=r"'medusa': not a folder; allowed: auto, none, ngram, eagle3"):
        choose_drafter("medusa", checkpoint, target)
