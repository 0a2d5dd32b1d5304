"""The EAGLE-3 draft network: one decoder layer over [embedding, state], where the state carries the target's taps.

A row is a token, a state and a position. The state is fused from the target's taps (`fuse`), or is what the previous
row of a chain fed back. Having a single layer, the network needs of all rows but the last nothing except their keys
and values (`store`).

Not here: which rows to run (`kernels.draft.place_rows`), drawing, names in a checkpoint (`weights`).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from slipstream.batch.attention_inputs import AttentionInputs
from slipstream.config.schema import Eagle3Spec
from slipstream.layers.attention_dense import AttentionGeometry, DenseAttention
from slipstream.layers.embedding import Embedding
from slipstream.layers.linear import ReplicatedLinear
from slipstream.layers.lm_head import LmHead
from slipstream.layers.mlp import DenseMlp, Silu
from slipstream.layers.norm import RMSNorm
from slipstream.layers.parts import DirectModule
from slipstream.layers.rope import build_rope_table
from slipstream.parallel.group import TensorParallelGroup

FIRST_VISIBLE = 1
"""Slot 0 of a request never holds a draft row: the row of token p needs the tap at p - 1."""


class Eagle3Model(DirectModule):
    """The network. Its norms store the gain itself; its MLP is SiLU-gated; its keys are rotated but not normed.

    Args:
        spec: the head's configuration.
        group: the ranks that share it.
        dtype: of weights and activations.
        device: where it lives.
        max_positions: rows of the rotary table; positions stay below it.
        has_embedding: hold an embedding of its own; otherwise the target's serves.
        has_lm_head: hold an output head of its own; otherwise the target's serves.
        has_vocab_map: the head's rows are a subset of the target's vocabulary, listed in `target_ids`.
    """

    def __init__(
        self,
        spec: Eagle3Spec,
        *,
        group: TensorParallelGroup,
        dtype: torch.dtype,
        device: torch.device | str,
        max_positions: int,
        has_embedding: bool,
        has_lm_head: bool,
        has_vocab_map: bool,
    ) -> None:
        super().__init__()
        hidden, target_hidden = spec.hidden_size, spec.target_hidden_size
        num_taps = len(spec.aux_layer_ids)

        def norm(width: int) -> RMSNorm:
            return RMSNorm(width, spec.rms_norm_eps, gemma=False, dtype=dtype, device=device)

        self.spec = spec
        self.embedding = (
            Embedding(spec.vocab_size, hidden, group=group, dtype=dtype, device=device) if has_embedding else None
        )
        self.lm_head = (
            LmHead(spec.draft_vocab_size, hidden, group=group, dtype=dtype, device=device) if has_lm_head else None
        )
        self.input_norm = norm(num_taps * target_hidden) if spec.norm_before_fc else None
        self.fc_norm = nn.ModuleList(norm(target_hidden) for _ in range(num_taps if spec.fc_norm else 0))
        self.fc = ReplicatedLinear(num_taps * target_hidden, hidden, dtype=dtype, device=device)
        self.input_layernorm = norm(hidden)
        self.hidden_norm = norm(hidden)
        self.attention = DenseAttention(
            AttentionGeometry(2 * hidden, hidden, spec.num_heads, spec.num_kv_heads, spec.head_dim, spec.rotary_dim),
            spec.rms_norm_eps,
            group=group,
            dtype=dtype,
            device=device,
            use_qk_norm=False,
            first_visible=FIRST_VISIBLE,
        )
        self.post_attention_layernorm = norm(hidden)
        self.mlp = DenseMlp(hidden, spec.intermediate_size, Silu(), group=group, dtype=dtype, device=device)
        self.norm = norm(hidden)
        # Not parameters: one is computed, the other is integers.
        self.rope_table = build_rope_table(max_positions, spec.rotary_dim, spec.rope_theta, device)
        self.target_ids = (
            torch.zeros(spec.draft_vocab_size, dtype=torch.int64, device=device) if has_vocab_map else None
        )  # [draft_vocab_size]; target id of each row of the head

    def fuse(self, taps: Tensor) -> Tensor:
        """Return the states that taps give.

        Args:
            taps: [num_tokens, num_taps * target_hidden_size]; ascending layers.

        Returns:
            [num_tokens, hidden_size].
        """
        if self.input_norm is not None:
            taps = self.input_norm(taps)
        if len(self.fc_norm):
            chunks = taps.chunk(len(self.fc_norm), dim=-1)
            taps = torch.cat([norm(chunk) for norm, chunk in zip(self.fc_norm, chunks, strict=True)], -1)
        return self.fc(taps)

    def store(
        self,
        embeddings: Tensor,
        states: Tensor,
        inputs: AttentionInputs,
        rope_positions: Tensor,
        k_pages: Tensor,
        v_pages: Tensor,
    ) -> None:
        """Write the keys and values of rows; nothing is attended.

        Args:
            embeddings: [num_tokens, hidden_size] of the rows' tokens.
            states: [num_tokens, hidden_size].
            inputs: slots; -1 = not written.
            rope_positions: [num_tokens] int64; position of each row's state.
            k_pages: [num_pages, page_size, num_kv_heads, head_dim]; in place.
            v_pages: same shape; in place.
        """
        x, _ = self._enter(embeddings, states)
        self.attention.store(x, inputs, k_pages, v_pages, self.rope_table, rope_positions)

    def forward(
        self,
        embeddings: Tensor,
        states: Tensor,
        inputs: AttentionInputs,
        rope_positions: Tensor,
        k_pages: Tensor,
        v_pages: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Write the rows' keys and values and run the layer.

        Args:
            embeddings: [num_tokens, hidden_size] of the rows' tokens.
            states: [num_tokens, hidden_size].
            inputs: slots, and the last position each row sees: that of its own slot.
            rope_positions: [num_tokens] int64.
            k_pages: [num_pages, page_size, num_kv_heads, head_dim]; in place.
            v_pages: same shape; in place.

        Returns:
            hidden: [num_tokens, hidden_size]; ready for the output head.
            feedback: [num_tokens, hidden_size]; state of the next row of the chain.
        """
        x, residual = self._enter(embeddings, states)
        attended = self.attention(x, inputs, k_pages, v_pages, self.rope_table, rope_positions)
        normed, residual = self.post_attention_layernorm.forward_add(attended, residual)
        hidden, residual = self.norm.forward_add(self.mlp(normed), residual)
        return hidden, hidden if self.spec.norm_output else residual

    def _enter(self, embeddings: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        normed = self.hidden_norm(states)
        x = torch.cat([self.input_layernorm(embeddings), normed], -1)  # [num_tokens, 2 * hidden_size]
        return x, normed if self.spec.norm_before_residual else states
