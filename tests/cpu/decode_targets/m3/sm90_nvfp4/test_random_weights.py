from __future__ import annotations

import pytest
import torch

from slipstream.base.errors import UnsupportedFeature
from slipstream.decode_targets.m3.sm90_nvfp4.random_weights import RandomWeights
from slipstream.decode_targets.m3.sm90_nvfp4.weights import MixtureWeights
from slipstream.kernels.moe.experts_nvfp4 import layout
from slipstream.profiling.rank_slice import slice_spec
from support.narrow_shapes import narrow_spec

SPEC, SIZES = slice_spec(narrow_spec(), 8)


def make(seed=0):
    return RandomWeights(SPEC, SIZES, torch.device("cpu"), seed).make(64)


def test_shapes_are_those_of_the_rank():
    weights = make()
    assert len(weights.layers) == SPEC.num_layers
    first, last = weights.layers[0], weights.layers[-1]
    assert first.qkv.out_features == (2 + 2 * 1) * 32
    assert last.qkv.out_features == (2 + 2 * 1 + 1 + 1) * 32
    assert isinstance(last.mlp, MixtureWeights)
    assert last.mlp.shared_gate_up.out_features == 2 * 128
    assert last.mlp.experts.w13.shape == (8, 2, 2, layout.TILE_WORDS)
    assert weights.embedding.shape == (64, 256)


def test_every_code_occurs_and_every_scale_is_one():
    weights = make()
    mixture = weights.layers[-1].mlp
    assert isinstance(mixture, MixtureWeights)
    codes, scales = layout.unpack(mixture.experts.w2)
    assert set((codes & 15).unique().tolist()) == set(range(16))
    assert bool((scales.float() == 1.0).all())


def test_products_keep_the_size_of_what_they_are_given():
    x = torch.randn(16, 256, generator=torch.Generator().manual_seed(1)).bfloat16()
    layer = make().layers[-1]
    assert isinstance(layer.mlp, MixtureWeights)
    values = layout.dequantise(layer.mlp.experts.w13) * layer.mlp.experts.w13_scale[:, None, None]
    for result in (layer.qkv.multiply(x).sum(0), x.float() @ values[0].T):
        assert 0.5 < float(result.std()) < 2.0


def test_a_slice_that_is_not_whole_tiles_is_refused():
    spec, sizes = slice_spec(narrow_spec(), 16)
    with pytest.raises(UnsupportedFeature, match="a rank holds 64 columns .* take fewer ranks"):
        RandomWeights(spec, sizes, torch.device("cpu")).make(64)


def test_a_seed_gives_the_same_weights_again():
    assert torch.equal(make(3).layers[2].qkv.words, make(3).layers[2].qkv.words)
    assert not torch.equal(make(3).layers[2].qkv.words, make(4).layers[2].qkv.words)
