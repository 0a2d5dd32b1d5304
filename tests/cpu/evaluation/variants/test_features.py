"""Each feature is switched off exactly: the engine on the changed copy equals a network without it."""

from __future__ import annotations

import json

import pytest
import torch

from slipstream.config.checkpoint import read_target
from slipstream.evaluation.variants.copies import write_variant
from slipstream.evaluation.variants.features import FEATURES
from slipstream.weights.reader import CheckpointReader
from support.m3_world import load_target
from support.tiny_checkpoints import make_tiny_checkpoint

BY_NAME = {feature.change.feature: feature for feature in FEATURES}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return make_tiny_checkpoint(tmp_path_factory.mktemp("source"), vision=False)


def changed(source, tmp_path, name):
    assert write_variant(source, tmp_path / "copy", BY_NAME[name], 0)
    return tmp_path / "copy"


def test_names_are_different_and_say_which_selection_they_are():
    assert len(BY_NAME) == len(FEATURES)
    assert {f.change.selection for f in FEATURES} == {None, "local", "random", "full"}
    assert all(f.change.needs_copy == (f.edit_tensors is not None) for f in FEATURES)


def test_the_gain_of_every_norm_loses_its_one(source, tmp_path):
    with_one, without = load_target(source), load_target(changed(source, tmp_path, "norm gain 1 + weight"))
    norms = [name for name, _ in with_one.named_parameters() if "norm" in name]
    assert len(norms) > 2 * len(with_one.layers)
    old, new = dict(with_one.named_parameters()), dict(without.named_parameters())
    for name in old:
        expected = old[name] - 1.0 if name in norms else old[name]
        assert torch.equal(new[name], expected), name


def test_queries_and_keys_enter_as_projected(source, tmp_path):
    """The norm of the copy is the identity on what the projection of the original gives."""
    old = load_target(source)
    new = load_target(changed(source, tmp_path, "query and key norm"))
    for before, after in zip(old.layers, new.layers, strict=True):
        hidden = torch.randn(5, old.spec.hidden_size) * 3
        num_heads = sum(1 for _ in before.attention.qk_norm.kind_of_head)
        positions = torch.zeros(5, dtype=torch.int64)
        raw = before.attention.qkv_proj.forward(hidden).view(5, -1, old.spec.head_dim)
        small = after.attention.qkv_proj.forward(hidden).view(5, -1, old.spec.head_dim)
        normed = after.attention.qk_norm.forward(small[:, :num_heads], new.rope_table, positions)
        # Position 0 is not turned.
        torch.testing.assert_close(normed, raw[:, :num_heads], rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(small[:, num_heads:], raw[:, num_heads:])


def test_experts_lose_what_was_asked(source, tmp_path):
    for name, ending in (("shared expert", "shared_experts.down_proj.weight"), ("expert selection bias", "bias")):
        folder = changed(source, tmp_path / name, name)
        with CheckpointReader(source) as before, CheckpointReader(folder) as after:
            assert before.names == after.names
            hit = [stored for stored in before.names if stored.endswith(ending)]
            assert hit
            for stored in before.names:
                values = after.read(stored)
                expected = torch.zeros_like(values) if stored in hit else before.read(stored)
                assert torch.equal(values, expected), stored
            assert any(before.read(stored).abs().max() > 0 for stored in hit)


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("partial rotary embedding", "rotary_dim", "head_dim"),
        ("activation clamp", "swiglu_limit", 1e9),
        ("activation alpha", "swiglu_alpha", 1.0),
        ("routed scaling factor", "routed_scaling_factor", 1.0),
    ],
)
def test_numbers_change_and_weights_are_linked(source, tmp_path, name, field, value):
    before, folder = read_target(source), changed(source, tmp_path, name)
    after = read_target(folder)
    assert getattr(after, field) == (before.head_dim if value == "head_dim" else value) != getattr(before, field)
    assert (folder / "model.safetensors").is_symlink()


def test_selections_keep_the_number_of_blocks_or_take_all(source, tmp_path):
    before = read_target(source)
    full = read_target(changed(source, tmp_path / "full", "block selection: full"))
    assert full.sparse.topk_blocks * full.sparse.index_block_size >= before.max_position_embeddings
    local = read_target(changed(source, tmp_path / "local", "block selection: local"))
    assert local.sparse.topk_blocks == before.sparse.topk_blocks
    assert local.sparse.num_local_blocks + local.sparse.num_init_blocks == local.sparse.topk_blocks
    folder = changed(source, tmp_path / "random", "block selection: random")
    assert read_target(folder) == before
    with CheckpointReader(source) as old, CheckpointReader(folder) as new:
        differing = {name for name in old.names if not torch.equal(old.read(name), new.read(name))}
        assert differing == {
            name for name in old.names if name.endswith(("index_q_proj.weight", "index_k_proj.weight"))
        }


def test_the_flat_and_the_resaved_dialect_are_changed_too(source, tmp_path):
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    text = config["text_config"]
    sparse = text.pop("sparse_attention_config")
    text |= {
        "layer_types": ["minimax_m3_sparse" if on else "full_attention" for on in sparse["sparse_attention_freq"]],
        "index_n_heads": sparse["sparse_num_index_heads"],
        "index_head_dim": sparse["sparse_index_dim"],
        "index_block_size": sparse["sparse_block_size"],
        "index_topk_blocks": sparse["sparse_topk_blocks"],
        "index_local_blocks": sparse["sparse_local_block"],
        "rope_parameters": {"rope_theta": text.pop("rope_theta"), "partial_rotary_factor": 0.5, "rope_type": "default"},
    }
    for name in ("rotary_dim", "partial_rotary_factor"):
        text.pop(name, None)
    flat = tmp_path / "flat"
    flat.mkdir()
    (flat / "config.json").write_text(json.dumps(config), encoding="utf-8")
    for name in ("model.safetensors", "generation_config.json"):
        (flat / name).symlink_to(source / name)
    before = read_target(flat)
    local = read_target(changed(flat, tmp_path / "local", "block selection: local"))
    assert local.sparse.num_local_blocks == before.sparse.topk_blocks != before.sparse.num_local_blocks
    whole = read_target(changed(flat, tmp_path / "rope", "partial rotary embedding"))
    assert whole.rotary_dim == before.head_dim


def test_a_feature_that_is_not_there_is_told(tmp_path):
    dense = make_tiny_checkpoint(tmp_path / "dense", vision=False, sparse=(0, 0), num_layers=2)
    for feature in FEATURES:
        if feature.change.selection is not None:
            assert not write_variant(dense, tmp_path / feature.change.selection, feature, 0)
    plain = tmp_path / "plain"
    write_variant(dense, plain, BY_NAME["activation alpha"], 0)
    assert not write_variant(plain, tmp_path / "again", BY_NAME["activation alpha"], 0)
