from __future__ import annotations

import msgspec
import pytest
import torch

from slipstream.base.errors import UnsupportedFeature
from slipstream.decode_targets.m3.sm90_nvfp4.from_model import weights_of
from slipstream.decode_targets.m3.sm90_nvfp4.weights import DenseMlpWeights, MixtureWeights
from slipstream.kernels.linear.matmul_mxfp8 import layout
from slipstream.models.m3.model import build_m3
from slipstream.parallel.group import one_rank
from support.m3_world import load_target
from support.tiny_checkpoints import make_tiny_checkpoint

GEOMETRY = {"hidden_size": 128, "dense_intermediate_size": 128, "expert_intermediate_size": 128}
GEOMETRY |= {"num_heads": 4, "num_kv_heads": 2, "head_dim": 32, "rotary_dim": 16, "index_head_dim": 32}
GEOMETRY |= {"shared_intermediate_size": 128}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = make_tiny_checkpoint(tmp_path_factory.mktemp("model"), **GEOMETRY)
    return load_target(folder, dtype=torch.bfloat16)


def test_every_layer_is_there_with_its_kind(model):
    weights = weights_of(model)
    kinds = tuple(isinstance(layer.mlp, MixtureWeights) for layer in weights.layers)
    assert kinds == model.spec.is_moe_layer
    assert any(isinstance(layer.mlp, DenseMlpWeights) for layer in weights.layers)
    assert [len(layer.head_norm) for layer in weights.layers] == [4 if s else 2 for s in model.spec.is_sparse_layer]
    assert torch.equal(weights.head, model.lm_head.weight)


def test_rows_are_in_the_order_of_the_generic_projection(model):
    for layer, packed in zip(model.layers, weights_of(model).layers, strict=True):
        values = layout.dequantise(packed.qkv.words, packed.qkv.scale_words, packed.qkv.out_features)
        wanted = layer.attention.qkv_proj.weight.float()
        assert values.shape == wanted.shape
        assert (values - wanted).norm() / wanted.norm() < 0.05


def test_a_network_without_a_shared_expert_is_refused(model):
    spec = msgspec.structs.replace(model.spec, num_shared_experts=0)
    bare = build_m3(spec, dtype=torch.bfloat16, device="cpu", group=one_rank())
    with torch.no_grad():
        for parameter in bare.parameters():
            parameter.zero_()
    with pytest.raises(UnsupportedFeature, match="needs a shared expert"):
        weights_of(bare)
