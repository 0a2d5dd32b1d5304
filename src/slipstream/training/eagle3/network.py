"""The EAGLE-3 head in differentiable torch; its parameters have the names of the field's checkpoints.

It computes what `models.eagle3` computes, a test holds the two together. Instead of a paged cache it keeps the keys
and values of whole texts, and runs every start of a text at once.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from slipstream.config.schema import Eagle3Spec
from slipstream.layers.rope import build_rope_table
from slipstream.training.eagle3.attend import attend

_INITIAL_SPREAD = 0.5


class PlainNorm(nn.Module):
    """RMS norm whose weight is the factor itself; computed in float32."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise over the last axis, in float32; the result has the parameters' dtype."""
        wide = x.float()
        return wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps) * self.weight


class DraftAttention(nn.Module):
    """The projections of the head's attention; they read embedding and state side by side."""

    def __init__(self, spec: Eagle3Spec) -> None:
        super().__init__()
        hidden = spec.hidden_size
        self.q_proj = _matrix(2 * hidden, spec.num_heads * spec.head_dim)
        self.k_proj = _matrix(2 * hidden, spec.num_kv_heads * spec.head_dim)
        self.v_proj = _matrix(2 * hidden, spec.num_kv_heads * spec.head_dim)
        self.o_proj = _matrix(spec.num_heads * spec.head_dim, hidden)


class DraftMlp(nn.Module):
    """A SiLU-gated MLP."""

    def __init__(self, spec: Eagle3Spec) -> None:
        super().__init__()
        self.gate_proj = _matrix(spec.hidden_size, spec.intermediate_size)
        self.up_proj = _matrix(spec.hidden_size, spec.intermediate_size)
        self.down_proj = _matrix(spec.intermediate_size, spec.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        """Apply."""
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class DraftLayer(nn.Module):
    """The parameters of the head's one layer; `DraftNetwork` runs it."""

    def __init__(self, spec: Eagle3Spec) -> None:
        super().__init__()
        self.input_layernorm = PlainNorm(spec.hidden_size, spec.rms_norm_eps)
        self.hidden_norm = PlainNorm(spec.hidden_size, spec.rms_norm_eps)
        self.post_attention_layernorm = PlainNorm(spec.hidden_size, spec.rms_norm_eps)
        self.self_attn = DraftAttention(spec)
        self.mlp = DraftMlp(spec)


class DraftNetwork(nn.Module):
    """The head.

    Args:
        spec: its shape and the places of its norms.
        max_positions: positions that can be rotated.
    """

    rope_table: Tensor  # [max_positions, rotary_dim] float32; cosines, then sines

    def __init__(self, spec: Eagle3Spec, max_positions: int) -> None:
        super().__init__()
        self.spec = spec
        num_taps, eps = len(spec.aux_layer_ids), spec.rms_norm_eps
        self.input_norm = PlainNorm(num_taps * spec.target_hidden_size, eps) if spec.norm_before_fc else None
        self.fc_norm = nn.ModuleList(PlainNorm(spec.target_hidden_size, eps) for _ in range(num_taps * spec.fc_norm))
        self.fc = _matrix(num_taps * spec.target_hidden_size, spec.hidden_size)
        self.midlayer = DraftLayer(spec)
        self.norm = PlainNorm(spec.hidden_size, eps)
        self.lm_head = _matrix(spec.hidden_size, spec.draft_vocab_size)
        self.register_buffer(
            "rope_table", build_rope_table(max_positions, spec.rotary_dim, spec.rope_theta, "cpu"), persistent=False
        )

    def fuse(self, taps: Tensor) -> Tensor:
        """Return [batch, rows, hidden_size] states of [batch, rows, num_taps * target_hidden_size] taps."""
        if self.input_norm is not None:
            taps = self.input_norm(taps)
        if len(self.fc_norm):
            chunks = taps.chunk(len(self.fc_norm), dim=-1)
            taps = torch.cat([norm(chunk) for norm, chunk in zip(self.fc_norm, chunks, strict=True)], -1)
        return self.fc(taps.to(self.fc.weight.dtype))

    def step(
        self, state: Tensor, embeddings: Tensor, positions: Tensor, keys: list[Tensor], values: list[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Run one draft step from every start.

        Args:
            state: [batch, rows, hidden_size]; fused taps, or what the step before fed back.
            embeddings: [batch, rows, hidden_size] of the tokens that enter.
            positions: [rows] int64; of the states.
            keys: [batch, rows, num_kv_heads, head_dim] of every step so far; this step's is appended.
            values: like keys.

        Returns:
            logits: [batch, rows, draft_vocab_size].
            feedback: [batch, rows, hidden_size]; state of the next step.
        """
        layer, spec = self.midlayer, self.spec
        entered = layer.hidden_norm(state)
        residual = entered if spec.norm_before_residual else state
        joined = torch.cat([layer.input_layernorm(embeddings), entered], -1)
        attention = layer.self_attn
        q, k, v = (
            matrix(joined).unflatten(-1, (-1, spec.head_dim))
            for matrix in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        keys.append(self._rotate(k, positions))
        values.append(v)
        residual = residual + attention.o_proj(attend(self._rotate(q, positions), keys, values))
        residual = residual + layer.mlp(layer.post_attention_layernorm(residual))
        hidden = self.norm(residual)
        return self.lm_head(hidden), hidden if spec.norm_output else residual

    def _rotate(self, heads: Tensor, positions: Tensor) -> Tensor:
        """Return [batch, rows, heads, head_dim] with the leading `rotary_dim` rotated by position, in float32."""
        half = self.spec.rotary_dim // 2
        cos, sin = self.rope_table[positions].unsqueeze(1).split(half, -1)  # each [rows, 1, half]
        wide = heads.float()
        first, second, rest = wide[..., :half], wide[..., half : 2 * half], wide[..., 2 * half :]
        return torch.cat([first * cos - second * sin, second * cos + first * sin, rest], -1).to(heads.dtype)


def _matrix(inputs: int, outputs: int) -> nn.Linear:
    matrix = nn.Linear(inputs, outputs, bias=False)
    nn.init.normal_(matrix.weight, std=_INITIAL_SPREAD * inputs**-0.5)
    return matrix
