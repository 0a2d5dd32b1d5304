"""Changed copies: complete folders, and control drafters that are no longer what was trained."""

from __future__ import annotations

import pytest
import torch

from slipstream.config.checkpoint import read_target
from slipstream.evaluation.variants.copies import SHUFFLED, UNTRAINED, weight_files, write_control, write_variant
from slipstream.evaluation.variants.features import FEATURES
from slipstream.weights.reader import CheckpointReader
from support.m3_world import load_target
from support.tiny_checkpoints import make_tiny_checkpoint, make_tiny_eagle3
from support.tiny_llm import make_tiny_llm


@pytest.fixture(scope="module")
def head(tmp_path_factory):
    target = make_tiny_checkpoint(tmp_path_factory.mktemp("target"), vision=False)
    return make_tiny_eagle3(tmp_path_factory.mktemp("head"), read_target(target), draft_vocab_size=64, fc_norm=True)


def tensors_of(folder):
    with CheckpointReader(folder) as reader:
        return {name: reader.read(name) for name in reader.names}


@pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: feature.change.feature)
def test_every_copy_loads_with_its_text_files(tmp_path, feature):
    source = make_tiny_llm(tmp_path / "source")
    assert write_variant(source, tmp_path / "copy", feature, 0)
    load_target(tmp_path / "copy")
    names = {file.name for file in source.iterdir() if file.is_file()}
    assert {file.name for file in (tmp_path / "copy").iterdir()} == names


def test_shards_and_left_out_tensors_are_no_hindrance(tmp_path):
    source = make_tiny_checkpoint(tmp_path / "source", num_shards=3, vision=True)
    assert len(weight_files(source)) == 3
    for feature in FEATURES[:4]:
        folder = tmp_path / feature.change.feature
        write_variant(source, folder, feature, 0)
        load_target(folder)


def test_shuffled_features_are_the_same_columns_in_another_order(tmp_path, head):
    write_control(head, tmp_path, SHUFFLED, 0)
    before, after = tensors_of(head), tensors_of(tmp_path)
    assert {name for name in before if not torch.equal(before[name], after[name])} == {"fc.weight"}
    order = {tuple(column) for column in before["fc.weight"].T.tolist()}
    assert {tuple(column) for column in after["fc.weight"].T.tolist()} == order


def test_an_untrained_head_keeps_shapes_and_vocabulary_only(tmp_path, head):
    write_control(head, tmp_path, UNTRAINED, 0)
    before, after = tensors_of(head), tensors_of(tmp_path)
    assert {name: tensor.shape for name, tensor in before.items()} == {n: t.shape for n, t in after.items()}
    for name, tensor in before.items():
        if not tensor.is_floating_point():
            assert torch.equal(tensor, after[name])
        elif tensor.dim() > 1:
            assert not torch.equal(tensor, after[name])
            assert after[name].float().std() == pytest.approx(0.02, rel=0.1)
