"""The EAGLE-3 head: one plain-RMSNorm layer over fused target states and token embeddings.

Row p of a sequence is made from the target's states at position p (the taps) and the token at p + 1; it predicts the
token at p + 2. Later drafts of the same round replace the fused state by the head's own normed output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from geometry import DraftGeometry
from network import rotary_table, rotate
from torch import Tensor, nn
from torch.nn import functional


class Linear(nn.Linear):
    """A bias-free matrix in the dtype of its input."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, bias=False)
        nn.init.normal_(self.weight, std=0.5 * inputs**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        """Multiply."""
        return functional.linear(x, self.weight.to(x.dtype))


class PlainNorm(nn.Module):
    """RMS norm whose stored weight is the factor itself."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise over the last axis."""
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return (wide * self.weight).to(x.dtype)


class DraftAttention(nn.Module):
    """Projections of the head's attention; the input is embedding, then hidden state."""

    def __init__(self, shape: DraftGeometry) -> None:
        super().__init__()
        width, hidden = shape.head_dim, shape.target.hidden_size
        self.q_proj = Linear(2 * hidden, shape.num_heads * width)
        self.k_proj = Linear(2 * hidden, shape.num_kv_heads * width)
        self.v_proj = Linear(2 * hidden, shape.num_kv_heads * width)
        self.o_proj = Linear(shape.num_heads * width, hidden)


class DraftMlp(nn.Module):
    """SwiGLU with SiLU."""

    def __init__(self, hidden: int, width: int) -> None:
        super().__init__()
        self.gate_proj = Linear(hidden, width)
        self.up_proj = Linear(hidden, width)
        self.down_proj = Linear(width, hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Apply."""
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class DraftLayer(nn.Module):
    """The one layer of the head; `DraftNetwork` runs it."""

    def __init__(self, shape: DraftGeometry) -> None:
        super().__init__()
        hidden = shape.target.hidden_size
        self.input_layernorm = PlainNorm(hidden, shape.norm_eps)
        self.hidden_norm = PlainNorm(hidden, shape.norm_eps)
        self.post_attention_layernorm = PlainNorm(hidden, shape.norm_eps)
        self.self_attn = DraftAttention(shape)
        self.mlp = DraftMlp(hidden, shape.intermediate_size)


class DraftNetwork(nn.Module):
    """The whole head; its state dict has the names of the field's EAGLE-3 checkpoints."""

    def __init__(self, shape: DraftGeometry) -> None:
        super().__init__()
        self.shape = shape
        hidden = shape.target.hidden_size
        self.fc = Linear(len(shape.taps) * hidden, hidden)
        self.fc_norm = nn.ModuleList(PlainNorm(hidden, shape.norm_eps) for _ in shape.taps)
        self.midlayer = DraftLayer(shape)
        self.norm = PlainNorm(hidden, shape.norm_eps)
        self.lm_head = Linear(hidden, shape.draft_vocab_size)
        self.register_buffer("d2t", torch.zeros(shape.draft_vocab_size, dtype=torch.int64))
        self.register_buffer("t2d", torch.zeros(shape.target.vocab_size, dtype=torch.bool))

    def set_vocabulary(self, kept: Tensor) -> None:
        """Choose the target ids that the head can draft; ascending, draft_vocab_size of them."""
        self.d2t.copy_(kept - torch.arange(kept.numel(), device=kept.device))
        self.t2d.zero_()
        self.t2d[kept] = True

    def kept_ids(self) -> Tensor:
        """Return the target id of every draft id."""
        return self.d2t + torch.arange(self.d2t.numel(), device=self.d2t.device)

    def fuse(self, taps: list[Tensor]) -> Tensor:
        """Turn the target's states into the head's hidden state."""
        return self.fc(torch.cat([scale(tap) for scale, tap in zip(self.fc_norm, taps, strict=True)], dim=-1))

    def project(self, x: Tensor, embedded: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return rotated q, k and v, [batch, rows, heads, head_dim]; RoPE covers the whole head."""
        layer, shape = self.midlayer, self.shape
        joined = torch.cat([layer.input_layernorm(embedded), layer.hidden_norm(x)], dim=-1)
        table = rotary_table(positions, shape.head_dim, shape.rope_theta)
        q, k, v = (
            proj(joined).unflatten(-1, (-1, shape.head_dim))
            for proj in (layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj)
        )
        return rotate(q, *table), rotate(k, *table), v

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """Return the normed output, which is both read by the head and fed back."""
        x = x + self.midlayer.self_attn.o_proj(attended)
        x = x + self.midlayer.mlp(self.midlayer.post_attention_layernorm(x))
        return self.norm(x)

    def unroll(
        self,
        embedding: Tensor,
        taps: list[Tensor],
        num_steps: int,
        token_of_step: Callable[[int, Tensor | None], Tensor],
    ) -> Iterator[Tensor]:
        """Run draft steps from every row at once.

        Step 0 is causal over all rows. Step i adds, for each row, the keys of its own steps 1..i, which is what a
        decode round sees: fresh rows up to its start, then its own drafts.

        Args:
            embedding: [vocab, hidden] table of the target.
            taps: states of the target, each [batch, rows, hidden]; row p is position p.
            num_steps: how many steps to run.
            token_of_step: gives the [batch, rows] target ids that enter a step, from its number and the step's
                predecessor's state.

        Yields:
            The normed state of every row, [batch, rows, hidden], one per step; `lm_head` scores draft ids with it.
        """
        rows = taps[0].shape[1]
        positions = torch.arange(rows, device=embedding.device)
        causal = positions[:, None] >= positions
        x, state = self.fuse(taps), None
        keys: list[Tensor] = []
        values: list[Tensor] = []
        for step in range(num_steps):
            embedded = embedding[token_of_step(step, state)].to(x.dtype)
            q, k, v = self.project(x, embedded, positions + step)
            keys.append(k)
            values.append(v)
            x = self.finish(x, attend(q, keys, values, causal))
            state = x
            yield state


def attend(q: Tensor, keys: list[Tensor], values: list[Tensor], causal: Tensor) -> Tensor:
    """Attend to all earlier rows of step 0 and to the own row of every later step.

    Args:
        q: [batch, rows, num_heads, head_dim].
        keys: one tensor per step, [batch, rows, num_kv_heads, head_dim].
        values: like keys.
        causal: [rows, rows] bool.

    Returns:
        [batch, rows, num_heads * head_dim].
    """
    batch, rows, num_heads, head_dim = q.shape
    num_kv_heads = keys[0].shape[2]
    grouped = q.unflatten(2, (num_kv_heads, -1))
    folded = grouped.permute(0, 2, 3, 1, 4).reshape(batch, num_kv_heads, -1, head_dim)
    shape = (batch, num_kv_heads, num_heads // num_kv_heads, rows)
    first = (folded @ keys[0].permute(0, 2, 3, 1)).view(*shape, rows).float()
    parts = [first.masked_fill(~causal, float("-inf"))]
    for k in keys[1:]:
        own = (grouped * k.unsqueeze(3)).float().sum(-1)
        parts.append(own.permute(0, 2, 3, 1).unsqueeze(-1))
    probs = (torch.cat(parts, dim=-1) * head_dim**-0.5).softmax(-1).to(q.dtype)
    mixed = probs[..., :rows].reshape(batch, num_kv_heads, -1, rows) @ values[0].transpose(1, 2)
    out = mixed.view(*shape, head_dim).permute(0, 3, 1, 2, 4)
    for index, v in enumerate(values[1:]):
        weight = probs[..., rows + index].permute(0, 3, 1, 2).unsqueeze(-1)
        out = out + weight * v.unsqueeze(3)
    return out.reshape(batch, rows, -1)
