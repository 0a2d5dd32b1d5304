"""The forward pass of this target, flat: every kernel of a layer stands here in the order of its launch.

It covers decode and verification, some rows per request; the generic model (`models.m3`) computes prompts and is the
reference. Products hand partial sums on to the kernel behind them, so a layer with experts is fourteen launches and the
experts' three.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from slipstream.base.errors import EngineError
from slipstream.batch.attention_inputs import AttentionInputs
from slipstream.batch.step_inputs import StepInputs
from slipstream.config.schema import TargetSpec
from slipstream.decode_targets.m3.sm90_nvfp4.weights import LayerWeights, MixtureWeights, TargetWeights
from slipstream.kernels.attention.choose_blocks.contract import choose_blocks
from slipstream.kernels.attention.dense_attend.contract import dense_attend
from slipstream.kernels.attention.sparse_attend.contract import sparse_attend
from slipstream.kernels.cache.place_heads.contract import HeadCounts, place_heads
from slipstream.kernels.moe.experts_nvfp4.contract import experts_nvfp4
from slipstream.kernels.moe.route.contract import route
from slipstream.kernels.moe.sum_swiglu_oai.contract import sum_swiglu_oai
from slipstream.kernels.norm.rms_norm.contract import rms_norm
from slipstream.kernels.norm.sum_add_rms_norm.contract import sum_add_rms_norm
from slipstream.models.interface import LayerCache, TargetOutput
from slipstream.models.m3.geometry import RankSizes


class Sm90Nvfp4Model:
    """One rank of the network: a `models.interface.TargetModel`.

    Args:
        spec: the network.
        sizes: what this rank holds of it.
        weights: of this rank.
        aux_layer_ids: zero-based layers whose output is tapped, ascending.
    """

    def __init__(
        self, spec: TargetSpec, sizes: RankSizes, weights: TargetWeights, aux_layer_ids: tuple[int, ...] = ()
    ) -> None:
        self.spec = spec
        self.weights = weights
        self.aux_layer_ids = aux_layer_ids
        self.on_routed: Callable[[Tensor], None] | None = None  # told of each layer's experts; for measurements
        self._dense_heads = HeadCounts(sizes.num_heads, sizes.num_kv_heads, 0)
        self._sparse_heads = HeadCounts(sizes.num_heads, sizes.num_kv_heads, sizes.num_index_heads)

    def forward(self, inputs: StepInputs, caches: tuple[LayerCache, ...]) -> TargetOutput:
        """Write K, V and index-K of the step's tokens, attend, and return states and taps.

        Args:
            inputs: token ids and addressing.
            caches: one per layer.
        """
        spec, weights, addressing = self.spec, self.weights, inputs.attention
        eps = spec.rms_norm_eps
        residual = self.embed(inputs.token_ids)
        taps = residual.new_empty(residual.shape[0], len(self.aux_layer_ids) * spec.hidden_size)
        normed = rms_norm(residual, weights.layers[0].input_norm, eps, True)
        for number, (layer, cache) in enumerate(zip(weights.layers, caches, strict=True)):
            mixed = self._attend(layer, cache, addressing, normed)
            parts = layer.o.multiply(mixed.flatten(1))
            normed, residual = sum_add_rms_norm(parts, None, residual, layer.post_attention_norm, eps, True)
            routed: Tensor | None = None
            if isinstance(layer.mlp, MixtureWeights):
                routed = self._run_experts(layer.mlp, normed, addressing.positions)
                parts = layer.mlp.shared_gate_up.multiply(normed)
                down = layer.mlp.shared_down
            else:
                parts, down = layer.mlp.gate_up.multiply(normed), layer.mlp.down
            parts = down.multiply(sum_swiglu_oai(parts, spec.swiglu_alpha, spec.swiglu_limit))
            is_last = number + 1 == len(weights.layers)
            next_norm = weights.norm if is_last else weights.layers[number + 1].input_norm
            normed, residual = sum_add_rms_norm(parts, routed, residual, next_norm, eps, True)
            if number in self.aux_layer_ids:
                place = self.aux_layer_ids.index(number) * spec.hidden_size
                taps[:, place : place + spec.hidden_size] = residual
        return TargetOutput(hidden=normed, aux_hidden_states=taps)

    def compute_logits(self, hidden: Tensor) -> Tensor:
        """Return [n, vocab_size] float32 logits of [n, hidden_size] states."""
        head = self.weights.head
        if head.device.type == "cuda":
            return torch.mm(hidden, head.t(), out_dtype=torch.float32)
        return hidden.float() @ head.float().t()

    def embed(self, token_ids: Tensor) -> Tensor:
        """Return [n, hidden_size] embeddings of [n] int64 token ids."""
        return self.weights.embedding.index_select(0, token_ids)

    def _attend(self, layer: LayerWeights, cache: LayerCache, addressing: AttentionInputs, normed: Tensor) -> Tensor:
        sparse = self.spec.sparse if cache.index_k is not None else None
        q, index_q = place_heads(
            layer.qkv.multiply(normed),
            self._dense_heads if sparse is None else self._sparse_heads,
            layer.head_norm,
            self.spec.rms_norm_eps,
            True,
            self.weights.rope_table,
            addressing.positions,
            cache.k,
            cache.v,
            addressing.slot_mapping,
            cache.index_k,
            None if sparse is None else addressing.index_slot_mapping,
        )
        table, requests, positions = addressing.page_table, addressing.req_of_token, addressing.positions
        if sparse is None:
            return dense_attend(q, cache.k, cache.v, table, requests, positions, 0)
        if cache.index_k is None:
            raise EngineError("a block-sparse layer got no pool for its index keys")
        blocks = choose_blocks(
            index_q,
            cache.index_k,
            addressing.index_page_table,
            requests,
            positions,
            sparse.topk_blocks,
            sparse.num_init_blocks,
            sparse.num_local_blocks,
        )
        return sparse_attend(q, cache.k, cache.v, table, requests, positions, blocks)

    def _run_experts(self, mlp: MixtureWeights, normed: Tensor, positions: Tensor) -> Tensor:
        spec = self.spec
        ids, shares = route(
            normed, mlp.router_weight, mlp.router_bias, positions, spec.topk_experts, spec.routed_scaling_factor
        )
        if self.on_routed is not None:
            self.on_routed(ids)
        experts = mlp.experts
        return experts_nvfp4(
            normed,
            ids,
            shares,
            experts.w13,
            experts.w13_scale,
            experts.w2,
            experts.w2_scale,
            spec.swiglu_alpha,
            spec.swiglu_limit,
        )
