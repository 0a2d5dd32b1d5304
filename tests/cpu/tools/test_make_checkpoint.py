"""The command lines that write random checkpoints: what they write is readable, and bad arguments are refused."""

import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from slipstream.config.checkpoint import read_target
from slipstream.config.drafter import read_eagle3
from support.m3_world import load_target
from support.tiny_checkpoints import make_checkpoint, make_eagle3, make_tiny_checkpoint, make_tiny_eagle3


def test_the_command_lines_write_a_target_and_its_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "target"
    arguments = ["make", str(folder), "--set", "num_layers=3", "--set", "sparse=[0,1,1]", "--shards", "2"]
    monkeypatch.setattr(sys, "argv", arguments)
    make_checkpoint.main()
    spec = load_target(folder).spec
    assert (spec.num_layers, spec.is_sparse_layer) == (3, (False, True, True))
    monkeypatch.setattr(sys, "argv", ["make", str(folder / "eagle3"), "--target", str(folder)])
    make_eagle3.main()
    assert read_eagle3(folder / "eagle3", spec).spec.aux_layer_ids == (0, 1, 2)


@pytest.mark.parametrize("pair", ["num_leyers=3", "num_layers", "num_layers="])
def test_a_misspelt_field_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pair: str) -> None:
    monkeypatch.setattr(sys, "argv", ["make", str(tmp_path), "--set", pair])
    with pytest.raises(SystemExit, match="num_layers"):
        make_checkpoint.main()


def test_the_seed_decides_the_weights(tmp_path: Path) -> None:
    folders = [make_tiny_checkpoint(tmp_path / str(number), seed=seed) for number, seed in enumerate((1, 1, 2))]
    first, same, other = (load_file(folder / "model.safetensors") for folder in folders)
    assert all(first[name].equal(same[name]) for name in first)
    assert not first["language_model.lm_head.weight"].equal(other["language_model.lm_head.weight"])


def test_every_flag_of_a_head_reaches_its_config_and_its_tensors(tmp_path: Path) -> None:
    target = read_target(make_tiny_checkpoint(tmp_path / "target"))
    folder = make_tiny_eagle3(
        tmp_path / "head", target, draft_vocab_size=32, fc_norm=True, norm_output=True, norm_before_residual=True
    )
    spec = read_eagle3(folder, target).spec
    assert (spec.draft_vocab_size, spec.fc_norm, spec.norm_output, spec.norm_before_residual) == (32, True, True, True)
    tensors = load_file(folder / "model.safetensors")
    assert {"fc_norm.0.weight", "fc_norm.1.weight", "fc_norm.2.weight", "d2t", "t2d"} <= set(tensors)
    assert tensors["lm_head.weight"].shape == (32, 64)
    assert tensors["fc.weight"].shape == (64, 3 * 64)
    bare = make_tiny_eagle3(
        tmp_path / "bare", target, norm_before_fc=True, embeddings=False, lm_head=False, aux_layer_ids=(1,)
    )
    assert read_eagle3(bare, target).spec.norm_before_fc
    tensors = load_file(bare / "model.safetensors")
    assert tensors["input_norm.weight"].shape == (64,)
    assert not {"embed_tokens.weight", "lm_head.weight"} & set(tensors)
