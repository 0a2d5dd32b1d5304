"""EAGLE-3 written down once more: one request, no cache, no pages, everything recomputed, float64.

It shares no code with the package: it reads the checkpoint's tensors by their published names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from slipstream.config.schema import Eagle3Spec


@dataclass(frozen=True)
class OracleDrafts:
    """Drafts of one request, and how far each was from its runner-up."""

    tokens: list[int]
    margins: list[float]
    feedback: list[Tensor]


class Eagle3Oracle:
    """The head of a folder.

    Args:
        folder: holds model.safetensors in the `midlayer` spelling.
        spec: its configuration.
        embedding: [vocab_size, hidden_size]; used when the checkpoint has none.
        lm_head: [vocab_size, hidden_size]; used when the checkpoint has none.
    """

    def __init__(
        self, folder: Path, spec: Eagle3Spec, embedding: Tensor | None = None, lm_head: Tensor | None = None
    ) -> None:
        stored = load_file(folder / "model.safetensors")
        self.spec = spec
        self.weights = {name: tensor.double() for name, tensor in stored.items() if tensor.is_floating_point()}
        self.embedding = self.weights["embed_tokens.weight"] if embedding is None else embedding.double()
        self.lm_head = self.weights["lm_head.weight"] if lm_head is None else lm_head.double()
        ids = torch.arange(spec.draft_vocab_size)
        self.target_ids = ids + stored["d2t"] if "d2t" in stored else ids

    def norm(self, x: Tensor, name: str) -> Tensor:
        mean = x.square().mean(-1, keepdim=True)
        return x / (mean + self.spec.rms_norm_eps).sqrt() * self.weights[f"{name}.weight"]

    def linear(self, x: Tensor, name: str) -> Tensor:
        return x @ self.weights[f"{name}.weight"].T

    def fuse(self, taps: Tensor) -> Tensor:
        taps = taps.double()
        if self.spec.norm_before_fc:
            taps = self.norm(taps, "input_norm")
        if self.spec.fc_norm:
            chunks = taps.split(self.spec.target_hidden_size, dim=-1)
            taps = torch.cat([self.norm(chunk, f"fc_norm.{tap}") for tap, chunk in enumerate(chunks)], -1)
        return self.linear(taps, "fc")

    def rotate(self, heads: Tensor, positions: Tensor) -> Tensor:
        half = self.spec.rotary_dim // 2
        inverse = self.spec.rope_theta ** (-torch.arange(half, dtype=torch.float64) / half)
        angle = positions.double()[:, None, None] * inverse
        first, second, rest = heads[..., :half], heads[..., half : 2 * half], heads[..., 2 * half :]
        return torch.cat(
            [first * angle.cos() - second * angle.sin(), second * angle.cos() + first * angle.sin(), rest], -1
        )

    def layer(self, tokens: Tensor, states: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return the output and the feedback of every row, each seeing itself and those before it."""
        spec = self.spec
        count = tokens.shape[0]
        entered = self.norm(states, "midlayer.hidden_norm")
        x = torch.cat([self.norm(self.embedding[tokens], "midlayer.input_layernorm"), entered], -1)
        residual = entered if spec.norm_before_residual else states
        q, k, v = (self.linear(x, f"midlayer.self_attn.{name}_proj").view(count, -1, spec.head_dim) for name in "qkv")
        q, k = self.rotate(q, positions), self.rotate(k, positions)
        group = spec.num_heads // spec.num_kv_heads
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        scores = torch.einsum("qhd,khd->hqk", q, k) / spec.head_dim**0.5
        hidden = torch.ones(count, count, dtype=torch.bool).triu(1)
        probs = scores.masked_fill(hidden, -torch.inf).softmax(-1)
        attended = torch.einsum("hqk,khd->qhd", probs, v).reshape(count, -1)
        residual = residual + self.linear(attended, "midlayer.self_attn.o_proj")
        m = self.norm(residual, "midlayer.post_attention_layernorm")
        gate, up = self.linear(m, "midlayer.mlp.gate_proj"), self.linear(m, "midlayer.mlp.up_proj")
        residual = residual + self.linear(gate / (1 + (-gate).exp()) * up, "midlayer.mlp.down_proj")
        out = self.norm(residual, "norm")
        return out, out if spec.norm_output else residual

    def drafts(
        self, tokens: list[int], taps: Tensor, draft_len: int, choose: Callable[[Tensor, int], Tensor] | None = None
    ) -> OracleDrafts:
        """Return the drafts that follow a text.

        Args:
            tokens: the text, last emitted token included.
            taps: [len(tokens) - 1, num_taps * target_hidden_size]; one per token but the last.
            draft_len: how many.
            choose: (logits, position of the token drawn) -> scores whose arg-max is taken; None takes the logits.
        """
        row_tokens = torch.tensor(tokens[1:])
        states = self.fuse(taps)
        result = OracleDrafts([], [], [])
        for step in range(draft_len):
            out, fed_back = self.layer(row_tokens, states, torch.arange(row_tokens.shape[0]))
            scores = out[-1] @ self.lm_head.T
            if choose is not None:
                scores = choose(scores, len(tokens) + step)
            best = scores.sort(descending=True)
            result.margins.append(float(best.values[0] - best.values[1]))
            result.tokens.append(int(self.target_ids[best.indices[0]]))
            result.feedback.append(fed_back[-1])
            row_tokens = torch.cat([row_tokens, self.target_ids[best.indices[:1]]])
            states = torch.cat([states, fed_back[-1:]])
        return result
