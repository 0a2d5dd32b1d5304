"""The MiniMax-M3 text network: pre-norm decoder, grouped-query attention (full or block-sparse), dense or mixture MLPs.

Not here: where its weights come from (`weights`), pools and page tables (arguments), sampling, drafting.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from slipstream.base.errors import ConfigError, EngineError
from slipstream.batch.step_inputs import StepInputs
from slipstream.config.schema import TargetSpec
from slipstream.layers.attention_dense import DenseAttention
from slipstream.layers.attention_sparse import SparseAttention
from slipstream.layers.embedding import Embedding
from slipstream.layers.lm_head import LmHead
from slipstream.layers.mlp import DenseMlp, SwigluOai
from slipstream.layers.moe import Moe
from slipstream.layers.norm import RMSNorm
from slipstream.layers.parts import DirectModule
from slipstream.layers.rope import build_rope_table
from slipstream.models.interface import LayerCache, TargetOutput
from slipstream.models.m3.geometry import attention_geometry, index_geometry, moe_geometry
from slipstream.parallel.group import TensorParallelGroup


class M3Layer(DirectModule):
    """One decoder layer, from the normed input to the normed input of what follows.

    Args:
        spec: the network.
        layer: zero-based index.
        group: the ranks.
        dtype: of the weights.
        device: of the weights.
    """

    def __init__(
        self,
        spec: TargetSpec,
        layer: int,
        *,
        group: TensorParallelGroup,
        dtype: torch.dtype,
        device: torch.device | str,
    ) -> None:
        super().__init__()
        hidden, eps = spec.hidden_size, spec.rms_norm_eps
        self.input_norm = RMSNorm(hidden, eps, gemma=True, dtype=dtype, device=device)
        self.post_attention_norm = RMSNorm(hidden, eps, gemma=True, dtype=dtype, device=device)
        attention = attention_geometry(spec)
        self.attention: DenseAttention | SparseAttention
        if spec.is_sparse_layer[layer]:
            self.attention = SparseAttention(
                attention, index_geometry(spec), eps, group=group, dtype=dtype, device=device
            )
        else:
            self.attention = DenseAttention(attention, eps, group=group, dtype=dtype, device=device)
        self.mlp: DenseMlp | Moe
        if spec.is_moe_layer[layer]:
            self.mlp = Moe(moe_geometry(spec), group=group, dtype=dtype, device=device)
        else:
            activation = SwigluOai(spec.swiglu_alpha, spec.swiglu_limit)
            self.mlp = DenseMlp(
                hidden, spec.dense_intermediate_size, activation, group=group, dtype=dtype, device=device
            )

    def forward(
        self,
        normed: Tensor,
        residual: Tensor,
        inputs: StepInputs,
        cache: LayerCache,
        rope_table: Tensor,
        next_norm: RMSNorm,
    ) -> tuple[Tensor, Tensor]:
        """Return the next layer's normed input and the residual stream after this layer.

        Args:
            normed: [num_tokens, hidden_size]; `input_norm` of the stream.
            residual: [num_tokens, hidden_size]; the stream.
            inputs: the step.
            cache: this layer's pools; keys and values are written before they are read.
            rope_table: [max_positions, rotary_dim] float32.
            next_norm: the norm that follows this layer: the next layer's, or the final one.
        """
        addressing = inputs.attention
        if isinstance(self.attention, SparseAttention):
            if cache.index_k is None:
                raise EngineError("a block-sparse layer got no pool for its index keys")
            mixed = self.attention.forward(normed, addressing, cache.k, cache.v, cache.index_k, rope_table)
        else:
            mixed = self.attention.forward(normed, addressing, cache.k, cache.v, rope_table)
        normed, residual = self.post_attention_norm.forward_add(mixed, residual)
        if isinstance(self.mlp, Moe):
            mixed = self.mlp.forward(normed, addressing.positions)
        else:
            mixed = self.mlp.forward(normed)
        return next_norm.forward_add(mixed, residual)


class M3Model(DirectModule):
    """The whole network: a `models.interface.TargetModel`.

    Args:
        spec: the network.
        group: the ranks.
        dtype: of weights and activations; the router and all sums stay in float32.
        device: of the weights.
        aux_layer_ids: zero-based layers whose output is tapped, ascending.
        max_positions: rows of the rotary table; None takes the checkpoint's max_position_embeddings.

    Raises:
        ConfigError: taps that the network does not have, or an axis that does not divide among the ranks.
    """

    rope_table: Tensor  # [max_positions, rotary_dim] float32

    def __init__(
        self,
        spec: TargetSpec,
        *,
        group: TensorParallelGroup,
        dtype: torch.dtype,
        device: torch.device | str,
        aux_layer_ids: tuple[int, ...] = (),
        max_positions: int | None = None,
    ) -> None:
        super().__init__()
        _check_taps(aux_layer_ids, spec.num_layers)
        self.spec = spec
        self.aux_layer_ids = aux_layer_ids
        self.embed_tokens = Embedding(spec.vocab_size, spec.hidden_size, group=group, dtype=dtype, device=device)
        self.layers = nn.ModuleList(
            M3Layer(spec, layer, group=group, dtype=dtype, device=device) for layer in range(spec.num_layers)
        )
        self.norm = RMSNorm(spec.hidden_size, spec.rms_norm_eps, gemma=True, dtype=dtype, device=device)
        self.lm_head = LmHead(spec.vocab_size, spec.hidden_size, group=group, dtype=dtype, device=device)
        if spec.tie_word_embeddings:
            self.lm_head.weight = self.embed_tokens.weight
        num_positions = spec.max_position_embeddings if max_positions is None else max_positions
        table = build_rope_table(num_positions, spec.rotary_dim, spec.rope_theta, device)
        self.register_buffer("rope_table", table, persistent=False)

    def forward(self, inputs: StepInputs, caches: tuple[LayerCache, ...]) -> TargetOutput:
        """Write K, V and index-K of the step's tokens, attend, and return states and taps.

        Args:
            inputs: token ids and addressing; any number of tokens, zero included.
            caches: one per layer.

        Returns:
            The states after the final norm, and the residual stream after each tapped layer. The taps are a copy:
            later layers cannot change them, and they do not include the final norm.
        """
        residual = self.embed_tokens.forward(inputs.token_ids)
        num_tokens, hidden_size = residual.shape
        # [num_tokens, width of all taps]
        taps = residual.new_empty(num_tokens, len(self.aux_layer_ids) * hidden_size)
        normed = self._norm_of(0)(residual)
        for number, (layer, cache) in enumerate(zip(self.layers, caches, strict=True)):
            normed, residual = layer(normed, residual, inputs, cache, self.rope_table, self._norm_of(number + 1))
            if number in self.aux_layer_ids:
                place = self.aux_layer_ids.index(number)
                taps[:, place * hidden_size : (place + 1) * hidden_size] = residual
        return TargetOutput(hidden=normed, aux_hidden_states=taps)

    def compute_logits(self, hidden: Tensor) -> Tensor:
        """Return [n, vocab_size] float32 logits of [n, hidden_size] states."""
        return self.lm_head.forward(hidden)

    def embed(self, token_ids: Tensor) -> Tensor:
        """Return [n, hidden_size] embeddings of [n] int64 token ids."""
        return self.embed_tokens.forward(token_ids)

    def _norm_of(self, number: int) -> RMSNorm:
        """Return the norm that feeds layer `number`, or the final norm past the last layer."""
        if number == len(self.layers):
            return self.norm
        layer = self.layers[number]
        assert isinstance(layer, M3Layer)
        return layer.input_norm


def _check_taps(aux_layer_ids: tuple[int, ...], num_layers: int) -> None:
    is_ascending = list(aux_layer_ids) == sorted(set(aux_layer_ids))
    if not is_ascending or any(not 0 <= layer < num_layers for layer in aux_layer_ids):
        raise ConfigError(
            f"aux_layer_ids={list(aux_layer_ids)}: allowed are different layers from 0 to {num_layers - 1}, ascending"
        )


def build_m3(
    spec: TargetSpec,
    *,
    dtype: torch.dtype,
    device: torch.device | str,
    group: TensorParallelGroup,
    aux_layer_ids: tuple[int, ...] = (),
    max_positions: int | None = None,
) -> M3Model:
    """Return the network with uninitialised weights; see `M3Model` and `weights.load_m3`."""
    model = M3Model(
        spec, group=group, dtype=dtype, device=device, aux_layer_ids=aux_layer_ids, max_positions=max_positions
    )
    return model.eval()
