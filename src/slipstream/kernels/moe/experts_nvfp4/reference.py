"""Definition of `experts_nvfp4`: the weights as numbers, then two float32 products per expert that somebody chose.

The list of active experts is read on the host, which a reference may do; only those experts are made into numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from slipstream.kernels.moe.experts_nvfp4.layout import dequantise, separate
from slipstream.kernels.moe.swiglu_oai.reference import swiglu_oai

if TYPE_CHECKING:
    from jaxtyping import BFloat16, Float32, Int32, Int64


def experts_nvfp4(
    x: BFloat16[Tensor, "num_tokens hidden_size"],
    expert_ids: Int64[Tensor, "num_tokens topk_experts"],
    expert_weights: Float32[Tensor, "num_tokens topk_experts"],
    w13: Int32[Tensor, "num_experts twice_intermediate_tiles hidden_tiles tile_words"],
    w13_scale: Float32[Tensor, "num_experts"],
    w2: Int32[Tensor, "num_experts hidden_tiles intermediate_tiles tile_words"],
    w2_scale: Float32[Tensor, "num_experts"],
    alpha: float,
    limit: float,
) -> BFloat16[Tensor, "num_tokens hidden_size"]:
    """See the contract."""
    outputs = torch.zeros(*expert_ids.shape, x.shape[1], device=x.device)
    for expert in expert_ids.unique().tolist():
        if expert < 0:
            continue
        token, slot = (expert_ids == expert).nonzero(as_tuple=True)
        gate, up = separate(dequantise(w13[expert : expert + 1]))
        weights = torch.cat((gate[0], up[0]))
        gate_up = x[token].float() @ weights.T * w13_scale[expert]
        activated = swiglu_oai(gate_up, alpha, limit).to(x.dtype)
        outputs[token, slot] = activated.float() @ dequantise(w2[expert : expert + 1])[0].T * w2_scale[expert]
    # INVARIANT: slots are added one after the other, so that a token's sum does not depend on its batch.
    return (outputs * expert_weights.unsqueeze(2)).sum(1).to(x.dtype)
