"""The target network for training and sampling: same mathematics as the engine, other storage.

Experts and the shared expert of a layer lie in one tensor and every expert runs on every token with a weight that is
zero unless it was chosen: wasteful in arithmetic, but one dense product, and equal to routing.
Weights are stored in float32 and cast to the dtype of the activations where they are used. While `is_rounded` is set,
the matrices that ship in MXFP8 are rounded so on the way.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from geometry import Geometry
from rounding import rounded
from selection import replace_scores, score_blocks, select_blocks, top_mask, visible_tokens
from torch import Tensor, nn
from torch.nn import functional

TINY_PROBABILITY = 1e-9
SCORE_SPREAD = (0.15, 0.55)


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """Multiply by a weight matrix in the dtype of x."""
    return functional.linear(x, weight.to(x.dtype))


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMS norm over the last axis; the stored weight is the offset from one."""
    wide = x.float()
    wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * (1.0 + weight.float())).to(x.dtype)


def rotary_table(positions: Tensor, rotary_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """Return cos and sin, [..., rotary_dim / 2] float32, of integer positions."""
    exponent = torch.arange(0, rotary_dim, 2, device=positions.device, dtype=torch.float32) / rotary_dim
    angles = positions.float().unsqueeze(-1) * theta**-exponent
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the first channels of [..., tokens, heads, head_dim]; channel i pairs with i + rotary_dim / 2."""
    half = cos.shape[-1]
    cos, sin = cos.unsqueeze(-2), sin.unsqueeze(-2)
    first, second, rest = x[..., :half].float(), x[..., half : 2 * half].float(), x[..., 2 * half :]
    turned = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
    return torch.cat([turned.to(x.dtype), rest], dim=-1)


def masked_attention(q: Tensor, k: Tensor, v: Tensor, visible: Tensor) -> tuple[Tensor, Tensor]:
    """Attend with an explicit mask.

    Args:
        q: [batch, num_queries, num_kv_heads, group_size, head_dim].
        k: [batch, num_keys, num_kv_heads, head_dim].
        v: same shape as k.
        visible: [batch or 1, num_kv_heads or 1, num_queries, num_keys] bool; no row is empty.

    Returns:
        [batch, num_queries, num_heads * head_dim] and the probabilities
        [batch, num_kv_heads, group_size, num_queries, num_keys].
    """
    batch, num_queries, num_kv_heads, group, head_dim = q.shape
    queries = q.permute(0, 2, 3, 1, 4).reshape(batch, num_kv_heads, group * num_queries, head_dim)
    scores = queries @ k.permute(0, 2, 3, 1)
    scores = scores.view(batch, num_kv_heads, group, num_queries, -1).float() * head_dim**-0.5
    probs = scores.masked_fill(~visible.unsqueeze(2), float("-inf")).softmax(-1).to(q.dtype)
    out = probs.view(batch, num_kv_heads, group * num_queries, -1) @ v.transpose(1, 2)
    out = out.view(batch, num_kv_heads, group, num_queries, head_dim).permute(0, 3, 1, 2, 4)
    return out.reshape(batch, num_queries, -1), probs


@dataclass
class LayerCache:
    """Keys of one layer for a batch of sequences; entry i of axis 1 is position i."""

    k: Tensor  # [batch, capacity, num_kv_heads, head_dim]
    v: Tensor  # [batch, capacity, num_kv_heads, head_dim]
    index_k: Tensor  # [batch, capacity, index_head_dim]


class Attention(nn.Module):
    """Grouped-query attention; in sparse layers with a branch that scores blocks."""

    def __init__(self, shape: Geometry, sparse: bool) -> None:
        super().__init__()
        self.shape, self.sparse = shape, sparse
        self.is_rounded, self.selection = False, "learned"
        width, hidden = shape.head_dim, shape.hidden_size
        self.q_proj = nn.Parameter(torch.empty(shape.num_heads * width, hidden))
        self.k_proj = nn.Parameter(torch.empty(shape.num_kv_heads * width, hidden))
        self.v_proj = nn.Parameter(torch.empty(shape.num_kv_heads * width, hidden))
        self.o_proj = nn.Parameter(torch.empty(hidden, shape.num_heads * width))
        self.q_norm = nn.Parameter(torch.zeros(width))
        self.k_norm = nn.Parameter(torch.zeros(width))
        if sparse:
            self.index_q_proj = nn.Parameter(torch.empty(shape.num_kv_heads * shape.index_head_dim, hidden))
            self.index_k_proj = nn.Parameter(torch.empty(shape.index_head_dim, hidden))
            self.index_q_norm = nn.Parameter(torch.zeros(shape.index_head_dim))
            self.index_k_norm = nn.Parameter(torch.zeros(shape.index_head_dim))

    def times(self, x: Tensor, weight: Tensor) -> Tensor:
        """Multiply by one of the layer's matrices."""
        return linear(x, rounded(weight) if self.is_rounded else weight)

    def heads(self, x: Tensor, proj: Tensor, scale: Tensor | None, width: int, table: tuple[Tensor, Tensor]) -> Tensor:
        """Project to [batch, tokens, heads, width]; with a norm weight also normalise and rotate."""
        out = self.times(x, proj).unflatten(-1, (-1, width))
        return out if scale is None else rotate(norm(out, scale, self.shape.norm_eps), *table)

    def project(self, x: Tensor, table: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Return q [batch, tokens, kv heads, group, width] and k, v [batch, tokens, kv heads, width]."""
        width = self.shape.head_dim
        q = self.heads(x, self.q_proj, self.q_norm, width, table)
        k = self.heads(x, self.k_proj, self.k_norm, width, table)
        v = self.heads(x, self.v_proj, None, width, table)
        return q.unflatten(2, (self.shape.num_kv_heads, -1)), k, v

    def index_keys(self, x: Tensor, table: tuple[Tensor, Tensor]) -> Tensor:
        """Return [batch, tokens, index_head_dim]."""
        return self.heads(x, self.index_k_proj, self.index_k_norm, self.shape.index_head_dim, table).squeeze(2)

    def index_queries(self, x: Tensor, table: tuple[Tensor, Tensor]) -> Tensor:
        """Return [batch, tokens, num_index_heads, index_head_dim]."""
        return self.heads(x, self.index_q_proj, self.index_q_norm, self.shape.index_head_dim, table)

    def choose(self, index_q: Tensor, index_k: Tensor, positions: Tensor) -> Tensor:
        """Return the visible keys under block selection, [batch, kv heads, num_queries, num_keys] bool."""
        shape = self.shape
        scores = score_blocks(index_q, index_k, positions, shape.index_block_size)
        if self.selection != "learned":
            scores = replace_scores(scores, self.selection)
        keep = select_blocks(scores, positions, shape.index_block_size, shape.topk_blocks, shape.num_local_blocks)
        return visible_tokens(keep, positions, shape.index_block_size)

    def index_loss(
        self, teacher: Tensor, x: Tensor, rows: Tensor, visible: Tensor, table: tuple[Tensor, Tensor]
    ) -> Tensor:
        """Return KL(teacher ‖ index branch), token by token over the visible keys, mean over rows and heads.

        Args:
            teacher: [batch, kv heads, num_rows, num_keys] attention averaged over a group, no gradient.
            x: [batch, tokens, hidden] input of the layer; gradients stop here.
            rows: [num_rows] query positions looked at.
            visible: broadcastable to teacher, bool.
            table: rotary table of all tokens.
        """
        x = x.detach()
        at_rows = (table[0][rows], table[1][rows])
        index_q = self.index_queries(x[:, rows], at_rows).float()
        index_k = self.index_keys(x, table).float()
        scores = torch.einsum("bqhd,bkd->bhqk", index_q, index_k) * self.shape.index_head_dim**-0.5
        student = scores.masked_fill(~visible, float("-inf")).log_softmax(-1)
        gap = torch.where(visible, (teacher + TINY_PROBABILITY).log() - student, 0.0)
        return (teacher * gap).sum(-1).mean()

    def forward(self, x: Tensor, table: tuple[Tensor, Tensor], rows: Tensor, select: bool) -> tuple[Tensor, Tensor]:
        """Attend over whole sequences that start at position 0; return the output and the index loss."""
        batch, tokens, _ = x.shape
        q, k, v = self.project(x, table)
        positions = torch.arange(tokens, device=x.device).unsqueeze(0)
        if self.sparse and select:
            with torch.no_grad():
                visible = self.choose(self.index_queries(x, table), self.index_keys(x, table), positions)
            out, probs = masked_attention(q, k, v, visible)
            teacher = probs.detach()[:, :, :, rows].float().mean(2)
            loss = self.index_loss(teacher, x, rows, visible[:, :, rows], table)
            return self.times(out, self.o_proj), loss
        out = functional.scaled_dot_product_attention(
            q.flatten(2, 3).transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True, enable_gqa=True
        )
        loss = x.new_zeros((), dtype=torch.float32)
        if self.sparse:
            causal = (positions <= rows[:, None])[None, None]
            with torch.no_grad():
                teacher = masked_attention(q[:, rows], k, v, causal)[1].float().mean(2)
            loss = self.index_loss(teacher, x, rows, causal, table)
        return self.times(out.transpose(1, 2).reshape(batch, tokens, -1), self.o_proj), loss

    def forward_cached(self, x: Tensor, positions: Tensor, table: tuple[Tensor, Tensor], cache: LayerCache) -> Tensor:
        """Write the new tokens at their positions, then attend over the cache with block selection."""
        row = torch.arange(x.shape[0], device=x.device).unsqueeze(1)
        q, cache.k[row, positions], cache.v[row, positions] = self.project(x, table)
        keys = torch.arange(cache.k.shape[1], device=x.device)
        visible = keys <= positions[:, None, :, None]
        if self.sparse:
            cache.index_k[row, positions] = self.index_keys(x, table)
            visible = self.choose(self.index_queries(x, table), cache.index_k, positions)
        return self.times(masked_attention(q, cache.k, cache.v, visible)[0], self.o_proj)


class FeedForward(nn.Module):
    """SwiGLU with clamped halves; dense, or routed experts plus one shared expert (the last)."""

    def __init__(self, shape: Geometry, sparse: bool) -> None:
        super().__init__()
        self.shape, self.sparse, self.is_rounded = shape, sparse, False
        count = shape.num_experts + 1 if sparse else 1
        width = shape.expert_intermediate_size if sparse else shape.dense_intermediate_size
        self.gate = nn.Parameter(torch.empty(count, width, shape.hidden_size))
        self.up = nn.Parameter(torch.empty(count, width, shape.hidden_size))
        self.down = nn.Parameter(torch.empty(count, width, shape.hidden_size))  # transposed on disk
        if sparse:
            self.router = nn.Parameter(torch.empty(shape.num_experts, shape.hidden_size))
            self.register_buffer("bias", torch.zeros(shape.num_experts))
            self.register_buffer("score_goal", torch.linspace(*SCORE_SPREAD, shape.num_experts), persistent=False)

    def route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weight of every expert, [..., num_experts + 1], and how many tokens chose each."""
        scores = functional.linear(x.float(), self.router.float()).sigmoid()
        chosen = top_mask((scores + self.bias).detach(), self.shape.topk_experts)
        kept = scores * chosen
        weights = self.shape.routed_scale * kept / kept.sum(-1, keepdim=True)
        shared = torch.ones_like(weights[..., :1])
        return torch.cat([weights, shared], dim=-1), chosen.flatten(0, -2).sum(0)

    def spread_loss(self, x: Tensor) -> Tensor:
        """Return how far each expert's mean score is from its goal, squared and summed; x gets no gradient.

        The goals differ between experts, so even load takes a selection bias that differs as much the other way.
        """
        scores = functional.linear(x.detach().float(), self.router.float()).sigmoid()
        return (scores.flatten(0, -2).mean(0) - self.score_goal).square().sum()

    def matrices(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return gate, up and down of all experts in one, rounded if asked for."""
        gate, up, down = self.gate, self.up, self.down
        if self.is_rounded:
            gate, up, down = rounded(gate), rounded(up), rounded(down.mT).mT
        return gate.flatten(0, 1), up.flatten(0, 1), down.flatten(0, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the output, the load of each expert (empty in a dense layer) and the spread loss."""
        shape = self.shape
        gate_weight, up_weight, down_weight = self.matrices()
        gate = linear(x, gate_weight).clamp(max=shape.swiglu_limit)
        up = linear(x, up_weight).clamp(-shape.swiglu_limit, shape.swiglu_limit)
        inner = (up + 1.0) * gate * torch.sigmoid(shape.swiglu_alpha * gate)
        load, spread = x.new_zeros(0, dtype=torch.int64), x.new_zeros((), dtype=torch.float32)
        if self.sparse:
            spread = self.spread_loss(x)
            weights, load = self.route(x)
            inner = (inner.unflatten(-1, (self.gate.shape[0], -1)) * weights.unsqueeze(-1).to(x.dtype)).flatten(-2)
        return inner @ down_weight.to(x.dtype), load, spread


class Block(nn.Module):
    """One decoder layer."""

    def __init__(self, shape: Geometry, layer: int) -> None:
        super().__init__()
        self.eps = shape.norm_eps
        self.input_norm = nn.Parameter(torch.zeros(shape.hidden_size))
        self.post_norm = nn.Parameter(torch.zeros(shape.hidden_size))
        self.attention = Attention(shape, shape.is_sparse(layer))
        self.mlp = FeedForward(shape, shape.is_sparse(layer))

    def forward(
        self, x: Tensor, table: tuple[Tensor, Tensor], rows: Tensor, select: bool
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the residual stream, the index loss, the spread loss and the expert load."""
        attended, index_loss = self.attention(norm(x, self.input_norm, self.eps), table, rows, select)
        x = x + attended
        fed, load, spread = self.mlp(norm(x, self.post_norm, self.eps))
        return x + fed, index_loss, spread, load

    def forward_cached(self, x: Tensor, positions: Tensor, table: tuple[Tensor, Tensor], cache: LayerCache) -> Tensor:
        """Run new tokens against the cache."""
        x = x + self.attention.forward_cached(norm(x, self.input_norm, self.eps), positions, table, cache)
        return x + self.mlp(norm(x, self.post_norm, self.eps))[0]


class Network(nn.Module):
    """The whole target."""

    def __init__(self, shape: Geometry) -> None:
        super().__init__()
        self.shape = shape
        self.embed = nn.Parameter(torch.empty(shape.vocab_size, shape.hidden_size))
        self.blocks = nn.ModuleList(Block(shape, layer) for layer in range(shape.num_layers))
        self.final_norm = nn.Parameter(torch.zeros(shape.hidden_size))
        self.head = nn.Parameter(torch.empty(shape.vocab_size, shape.hidden_size))

    def initialise(self, seed: int) -> None:
        """Draw fresh weights; norms get some spread so that their offset from one matters."""
        source = torch.Generator().manual_seed(seed)
        depth = (2 * self.shape.num_layers) ** -0.5
        for name, parameter in self.named_parameters():
            spread = self.shape.hidden_size**-0.5 * 0.5
            if name == "embed":
                spread = 0.1
            elif name == "head":
                spread = 0.01
            elif name.endswith(("o_proj", "down")):
                spread *= depth
            elif parameter.ndim == 1:
                spread = 0.05
            with torch.no_grad():
                parameter.copy_(torch.randn(parameter.shape, generator=source) * spread)
        for block in self.blocks:
            if block.mlp.sparse:
                order = torch.randperm(self.shape.num_experts, generator=source)
                block.mlp.score_goal.copy_(torch.linspace(*SCORE_SPREAD, self.shape.num_experts)[order])

    def set_rounding(self, is_rounded: bool) -> None:
        """Round the matrices that ship in MXFP8 in every forward pass, or do not."""
        for block in self.blocks:
            block.attention.is_rounded = block.mlp.is_rounded = is_rounded

    def set_selection(self, selection: str) -> None:
        """Choose blocks by the index (`learned`), or for comparison at random (`random`) or the latest (`local`)."""
        for block in self.blocks:
            block.attention.selection = selection

    def rotary(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rotary table of positions."""
        return rotary_table(positions, self.shape.rotary_dim, self.shape.rope_theta)

    def forward(
        self, tokens: Tensor, rows: Tensor, select: bool, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
        """Run whole sequences.

        Args:
            tokens: [batch, length] token ids; sequences start at position 0.
            rows: [num_rows] positions at which the index loss is taken.
            select: attend to chosen blocks only in sparse layers.
            dtype: of the activations.

        Returns:
            Residual stream before the final norm, summed index loss, summed spread loss, expert loads per sparse layer.
        """
        x = self.embed[tokens].to(dtype)
        table = self.rotary(torch.arange(tokens.shape[1], device=tokens.device))
        index_loss = spread_loss = torch.zeros((), device=tokens.device)
        loads = []
        for block in self.blocks:
            x, layer_loss, spread, load = block(x, table, rows, select)
            index_loss, spread_loss = index_loss + layer_loss, spread_loss + spread
            loads.append(load)
        return x, index_loss, spread_loss, [load for load in loads if load.numel()]

    def logits(self, x: Tensor) -> Tensor:
        """Return next-token scores of the residual stream."""
        return linear(norm(x, self.final_norm, self.shape.norm_eps), self.head)

    def new_cache(self, batch: int, capacity: int, dtype: torch.dtype) -> list[LayerCache]:
        """Return an empty cache; the capacity is rounded up to whole blocks."""
        shape = self.shape
        capacity = -(-capacity // shape.index_block_size) * shape.index_block_size
        keys = (batch, capacity, shape.num_kv_heads, shape.head_dim)
        device = self.embed.device
        return [
            LayerCache(
                torch.zeros(keys, device=device, dtype=dtype),
                torch.zeros(keys, device=device, dtype=dtype),
                torch.zeros((batch, capacity, shape.index_head_dim), device=device, dtype=dtype),
            )
            for _ in range(shape.num_layers)
        ]

    def forward_cached(
        self, tokens: Tensor, start: Tensor, cache: list[LayerCache], taps: tuple[int, ...] = ()
    ) -> tuple[Tensor, list[Tensor]]:
        """Run new tokens of every sequence.

        Args:
            tokens: [batch, num_new] token ids.
            start: [batch] position of the first new token of each sequence.
            cache: one entry per layer, written in place.
            taps: layers whose output residual stream is returned.

        Returns:
            Residual stream [batch, num_new, hidden] before the final norm, and the taps.
        """
        positions = start[:, None] + torch.arange(tokens.shape[1], device=tokens.device)
        table = self.rotary(positions)
        x = self.embed[tokens].to(cache[0].k.dtype)
        tapped = []
        for layer, block in enumerate(self.blocks):
            x = block.forward_cached(x, positions, table, cache[layer])
            if layer in taps:
                tapped.append(x)
        return x, tapped
