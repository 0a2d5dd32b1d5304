"""Weights of this target out of the generic network's: quantise what is a matrix, keep the rest.

Weights that came from an MXFP8 checkpoint stay exactly what they are. Experts are quantised to NVFP4 anew, which
loses what four bits cannot hold: a checkpoint's own codes are another loader's matter.
"""

from __future__ import annotations

from slipstream.base.errors import UnsupportedFeature
from slipstream.decode_targets.m3.sm90_nvfp4.weights import (
    DenseMlpWeights,
    LayerWeights,
    MixtureWeights,
    Nvfp4Experts,
    TargetWeights,
    mxfp8_matrix,
    nvfp4_experts,
)
from slipstream.layers.mlp import DenseMlp
from slipstream.layers.moe import Moe
from slipstream.models.m3.model import M3Layer, M3Model


def weights_of(model: M3Model) -> TargetWeights:
    """Return one rank's weights in the run-time form.

    Args:
        model: the generic network, loaded, in bfloat16.

    Raises:
        UnsupportedFeature: a layer with experts has no shared expert; this target is written for one.
    """
    return TargetWeights(
        embedding=model.embed_tokens.weight.detach(),
        layers=tuple(_layer(layer) for layer in model.layers if isinstance(layer, M3Layer)),
        norm=model.norm.weight.detach(),
        head=model.lm_head.weight.detach(),
        rope_table=model.rope_table,
    )


def _layer(layer: M3Layer) -> LayerWeights:
    attention = layer.attention
    assert attention.qk_norm is not None
    return LayerWeights(
        input_norm=layer.input_norm.weight.detach(),
        qkv=mxfp8_matrix(attention.qkv_proj.weight.detach()),
        head_norm=attention.qk_norm.weight.detach(),
        o=mxfp8_matrix(attention.o_proj.weight.detach()),
        post_attention_norm=layer.post_attention_norm.weight.detach(),
        mlp=_mixture(layer.mlp) if isinstance(layer.mlp, Moe) else _dense(layer.mlp),
    )


def _dense(mlp: DenseMlp) -> DenseMlpWeights:
    return DenseMlpWeights(mxfp8_matrix(mlp.gate_up_proj.weight.detach()), mxfp8_matrix(mlp.down_proj.weight.detach()))


def _mixture(moe: Moe) -> MixtureWeights:
    if moe.shared is None:
        raise UnsupportedFeature("sm90_nvfp4 needs a shared expert in every layer with experts; this network has none")
    shared = _dense(moe.shared)
    return MixtureWeights(
        router_weight=moe.router.weight.detach(),
        router_bias=moe.router.bias.detach(),
        experts=_experts(moe),
        shared_gate_up=shared.gate_up,
        shared_down=shared.down,
    )


def _experts(moe: Moe) -> Nvfp4Experts:
    gate, up = moe.experts.w13.detach().chunk(2, dim=1)
    return nvfp4_experts(gate, up, moe.experts.w2.detach())
