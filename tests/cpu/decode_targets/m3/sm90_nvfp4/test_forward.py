"""The flat forward against the generic network on the same values, and what must not change its results."""

from __future__ import annotations

import pytest
import torch

from slipstream.decode_targets.m3.sm90_nvfp4.forward import Sm90Nvfp4Model
from slipstream.decode_targets.m3.sm90_nvfp4.from_model import weights_of
from slipstream.kernels.linear.matmul_mxfp8 import layout as mxfp8_layout
from slipstream.kernels.moe.experts_nvfp4 import layout as nvfp4_layout
from slipstream.models.m3.geometry import rank_sizes
from slipstream.parallel.mesh import Mesh
from support.m3_world import PagedCache, load_target
from support.tiny_checkpoints import make_tiny_checkpoint

GEOMETRY = {
    "hidden_size": 128,
    "num_heads": 4,
    "num_kv_heads": 2,
    "head_dim": 32,
    "rotary_dim": 16,
    "index_head_dim": 32,
    "dense_intermediate_size": 128,
    "expert_intermediate_size": 128,
    "shared_intermediate_size": 128,
}
TOKENS = list(range(3, 60))


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """The flat target, and the generic network holding the very values that the target's weights stand for."""
    folder = make_tiny_checkpoint(tmp_path_factory.mktemp("target"), **GEOMETRY)
    model = load_target(folder, dtype=torch.bfloat16)
    weights = weights_of(model)
    for layer, packed in zip(model.layers, weights.layers, strict=True):
        put(layer.attention.qkv_proj.weight, packed.qkv)
        put(layer.attention.o_proj.weight, packed.o)
        mlp = packed.mlp
        if hasattr(layer.mlp, "experts"):
            put(layer.mlp.shared.gate_up_proj.weight, mlp.shared_gate_up)
            put(layer.mlp.shared.down_proj.weight, mlp.shared_down)
            w13, w2 = nvfp4_layout.dequantise(mlp.experts.w13), nvfp4_layout.dequantise(mlp.experts.w2)
            w13 = torch.cat(nvfp4_layout.separate(w13), 1) * mlp.experts.w13_scale[:, None, None]
            layer.mlp.experts.w13.data.copy_(w13)
            layer.mlp.experts.w2.data.copy_(w2 * mlp.experts.w2_scale[:, None, None])
        else:
            put(layer.mlp.gate_up_proj.weight, mlp.gate_up)
            put(layer.mlp.down_proj.weight, mlp.down)
    return Sm90Nvfp4Model(model.spec, rank_sizes(model.spec, Mesh()), weights, aux_layer_ids=(0, 2)), model


def put(parameter, matrix):
    parameter.data.copy_(mxfp8_layout.dequantise(matrix.words, matrix.scale_words, matrix.out_features))


def run(target, model, chunks):
    """Return the hidden states of the last chunk, behind a cache that was filled chunk by chunk."""
    cache = PagedCache(model, max_tokens=64)
    cache.model = target
    output = None
    for chunk in chunks:
        output = cache.step([(0, chunk)])
    return output


def test_it_agrees_with_the_generic_network(pair):
    """Within bfloat16's rounding: the generic network rounds a whole product, this one a sum of parts."""
    flat, model = pair
    found, wanted = (run(one, model, [TOKENS[:-4], TOKENS[-4:]]) for one in (flat, model))
    error = (found.hidden.float() - wanted.hidden.float()).norm() / wanted.hidden.float().norm()
    assert error < 0.02
    logits = [one.compute_logits(output.hidden) for one, output in ((flat, found), (model, wanted))]
    assert (logits[0] - logits[1]).norm() / logits[1].norm() < 0.02
    assert found.aux_hidden_states.shape == (4, 2 * 128)


def test_a_wrong_matrix_would_be_seen(pair):
    """The bound above is no formality."""
    flat, model = pair
    layer = model.layers[1]
    kept = layer.attention.o_proj.weight.data.clone()
    layer.attention.o_proj.weight.data.neg_()
    try:
        found, wanted = (run(one, model, [TOKENS[:-4], TOKENS[-4:]]) for one in (flat, model))
    finally:
        layer.attention.o_proj.weight.data.copy_(kept)
    assert (found.hidden.float() - wanted.hidden.float()).norm() / wanted.hidden.float().norm() > 0.1


def test_a_ladder_equals_its_rows_one_by_one(pair):
    """Bit for bit: no sum depends on what else is in the batch."""
    flat, model = pair
    together = run(flat, model, [TOKENS[:-4], TOKENS[-4:]]).hidden
    single = run(flat, model, [TOKENS[:-4], *[[token] for token in TOKENS[-4:]]]).hidden
    assert torch.equal(together[-1:], single)
